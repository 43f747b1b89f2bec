"""Do what a newcomer does: train, report, and run every command that these print, pasted as it is.

    python tests/install/first_steps.py       PIP_ARGS in the environment goes to pip, as in the Makefile

First from the wheel, which is built, installed into an environment of its own and used in an empty folder. Then from the checkout, whose
`.venv/bin/populora` is not on PATH. Standard library only; no path of the checkout or of its environment is in the environment of what the
wheel's populora starts. It fails if a command fails, or if a line that looks like a command does not run.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHECKOUT_PROGRAM = ".venv/bin/populora"
STEPS = ("--steps", "3", "--selfplay.prompts-per-type", "2")
SHORT = ("tiny_1t1s", *STEPS, "--evaluation.every", "0")
"""A preset and settings for a run whose results nobody looks at."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = install_wheel(Path(folder))
        empty = Path(folder) / "empty"
        empty.mkdir()
        check_origin(program, empty)
        train_and_report(program, empty)
        edit_settings(program, empty)
        interrupt_and_resume(program, empty)
        if (ROOT / CHECKOUT_PROGRAM).exists():
            train_in_checkout(Path(folder) / "from the checkout")
    print("first steps: all commands ran")


def install_wheel(folder: Path) -> Path:
    """Build the checkout's wheel and install it into a new environment. Return the path of its `populora`."""
    options = shlex.split(os.environ.get("PIP_ARGS", ""))
    wheel, again = (build_wheel(folder / name, options) for name in ("wheel", "again"))
    size = wheel.stat().st_size / 1e6
    print(f"{wheel.name}: {size:.1f} MB", flush=True)
    if wheel.read_bytes() != again.read_bytes():
        sys.exit("expected two builds of the wheel to have the same bytes")
    if size > 15:
        sys.exit(f"expected a wheel of at most 15 MB, it has {size:.1f}")
    venv.create(folder / "environment", with_pip=True)
    scripts = folder / "environment" / "bin"
    subprocess.run(
        [str(scripts / "python"), "-m", "pip", "install", "--quiet", "--no-compile", *options, str(wheel)], check=True, cwd=folder
    )
    return scripts / "populora"


def build_wheel(folder: Path, options: Sequence[str]) -> Path:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *options, "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(build, check=True)
    return next(folder.glob("populora_selfplay-*.whl"))


def check_origin(program: Path, empty: Path) -> None:
    """Check that the wheel's package is used, not the checkout's."""
    origin = run(empty, str(program.parent / "python"), "-c", "import populora; print(populora.__file__)").strip()
    if not Path(origin).is_relative_to(program.parents[1]):
        sys.exit(f"expected populora in {program.parents[1]}, it is {origin}")


def train_and_report(program: Path, empty: Path) -> None:
    """`populora train` and `populora report`, without an argument but those of a short run, and all that they say to type next."""
    paste_all(empty, run(empty, str(program), "train", *STEPS, "--evaluation.problems-per-type", "4"), at_least=3)
    decoder = json.loads((empty / "runs" / "tiny" / "run.json").read_text())["computation"]["decoder"]
    if shutil.which("cc") and not decoder.startswith("C ("):
        sys.exit(f"expected the wheel's decoder in C, as there is a compiler; it is {decoder}")
    page = empty / "runs" / "tiny" / "report.html"
    page.unlink()
    printed = run(empty, str(program), "report")
    paste_all(empty, printed)
    if not page.is_file() or str(page.relative_to(empty)) not in printed:
        sys.exit(f"expected {page}, and its path in:\n{printed}")
    if not list(empty.glob("tiny-s*/adapter_model.safetensors")):
        sys.exit("the command that exports an adapter wrote none")


def edit_settings(program: Path, empty: Path) -> None:
    """List the presets, run all that the list names, and write one preset as a file."""
    paste_all(empty, run(empty, str(program), "train", "--list"), at_least=8)
    (command,) = commands(run(empty, str(program), "init", "tiny_4t4s"))
    run(empty, *command, "--dry-run")


def interrupt_and_resume(program: Path, empty: Path) -> None:
    """Ctrl-C, and the command that goes on."""
    folder = empty / "runs" / "interrupted"
    command = [str(program), "train", *SHORT, "--out", str(folder)]
    with subprocess.Popen(command, cwd=empty, env=bare(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while process.poll() is None and not (folder / "metrics.jsonl").exists():
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate()
    if process.returncode != 130:
        sys.exit(f"expected exit code 130 after Ctrl-C, got {process.returncode}:\n{printed}")
    (resume, *_) = [words for words in commands(printed) if words[1] == "resume"]
    run(empty, *resume)


def train_in_checkout(folder: Path) -> None:
    """A short run in the checkout, where the commands to paste name `.venv/bin/populora`. One is pasted: the others have run above."""
    pasted = commands(run(ROOT, CHECKOUT_PROGRAM, "train", *SHORT, "--out", str(folder)))
    if len(pasted) < 3 or {words[0] for words in pasted} != {CHECKOUT_PROGRAM}:
        sys.exit(f"expected three commands of {CHECKOUT_PROGRAM} or more, got {pasted}")
    (show,) = [words for words in pasted if words[1] == "show"]
    run(ROOT, *show)


def paste_all(folder: Path, printed: str, at_least: int = 0) -> None:
    """Run each command in ``printed`` in a folder."""
    pasted = commands(printed)
    if len(pasted) < at_least:
        sys.exit(f"expected {at_least} commands or more, got {len(pasted)} in:\n{printed}")
    for words in pasted:
        run(folder, *words)


def commands(printed: str) -> list[list[str]]:
    """Split the commands of populora in a text into words: lines that begin with one, and text between backticks.

    A command that should name its path and does not is kept as it is: it will not run."""
    lines = [line.strip() for line in printed.splitlines()]
    whole = [line for line in lines if re.match(r"(\S*/)?populora [a-z]", line)]
    quoted = re.findall(r"`((?:\S*/)?populora [^`]*)`", printed)
    return [shlex.split(line) for line in dict.fromkeys(whole + quoted)]


def run(folder: Path, *command: str) -> str:
    """Run a command in a folder. Return what it prints, or end everything if it fails."""
    print("$", shlex.join(command), flush=True)
    done = subprocess.run(command, cwd=folder, env=bare(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def bare() -> dict[str, str]:
    """A newcomer's environment: no path of this checkout or its environment, no settings of threads or Python."""
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"), "LANG": os.environ.get("LANG", "C.UTF-8")}


if __name__ == "__main__":
    main()
