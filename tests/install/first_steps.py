"""What a newcomer does, in an empty folder: train, report, and every command that these print, pasted as it is.

    python tests/install/first_steps.py                    builds the wheel and installs it into an environment of its own
    python tests/install/first_steps.py PATH/TO/populora   with a populora that is installed already

Standard library only; neither the repository nor this environment is on any path of what it starts. It fails where a command fails, and
where a line that looks like a command does not run.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
STEPS = ("--steps", "3")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        program = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else installed_wheel(here)
        empty = here / "empty"
        empty.mkdir()
        check_origin(program, empty, from_wheel=len(sys.argv) == 1)
        first_run(program, empty)
        own_settings(program, empty)
        interrupted_run(program, empty)
    print("first steps: all commands ran")


def installed_wheel(here: Path) -> Path:
    """The wheel of this checkout in a new environment; its `populora`."""
    pip = (sys.executable, "-m", "pip")
    subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(here / "wheel"), str(ROOT)], check=True)
    (wheel,) = (here / "wheel").glob("populora-*.whl")
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
    venv.create(here / "environment", with_pip=True)
    scripts = here / "environment" / "bin"
    subprocess.run([str(scripts / "python"), "-m", "pip", "install", "--quiet", str(wheel)], check=True, cwd=here)
    return scripts / "populora"


def check_origin(program: Path, empty: Path, from_wheel: bool) -> None:
    """The wheel's package is used, not the checkout's."""
    python = str(program.parent / "python")
    origin = run(empty, python, "-c", "import populora; print(populora.__file__)").strip()
    if from_wheel and not Path(origin).is_relative_to(program.parents[1]):
        sys.exit(f"expected populora in {program.parents[1]}, it is {origin}")


def first_run(program: Path, empty: Path) -> None:
    """`populora train`, `populora report`, both without an argument but the number of steps, and what they say to type next."""
    paste_all(empty, program, run(empty, str(program), "train", *STEPS), at_least=3)
    page = empty / "runs" / "tiny" / "report.html"
    page.unlink()
    printed = run(empty, str(program), "report")
    paste_all(empty, program, printed, at_least=0)
    if not page.is_file() or str(page.relative_to(empty)) not in printed:
        sys.exit(f"expected {page}, and its path in:\n{printed}")
    if not list(empty.glob("tiny-s*/adapter_model.safetensors")):
        sys.exit("the command that exports an adapter wrote none")


def own_settings(program: Path, empty: Path) -> None:
    """The list of presets, and one of them as a file."""
    run(empty, str(program), "train", "--list")
    (command,) = commands(run(empty, str(program), "init", "tiny_4t4s"), program)
    run(empty, *command, "--dry-run")


def interrupted_run(program: Path, empty: Path) -> None:
    """Ctrl-C, and the command that goes on."""
    folder = empty / "runs" / "interrupted"
    command = [str(program), "train", "tiny_1t1s", *STEPS, "--out", str(folder)]
    with subprocess.Popen(command, cwd=empty, env=bare(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while process.poll() is None and not (folder / "metrics.jsonl").exists():
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate()
    if process.returncode != 130:
        sys.exit(f"expected exit code 130 after Ctrl-C, got {process.returncode}:\n{said}")
    (resume, *_) = [words for words in commands(said, program) if words[1] == "resume"]
    run(empty, *resume)


def paste_all(empty: Path, program: Path, printed: str, at_least: int) -> None:
    """Run each command that stands in ``printed``."""
    pasted = commands(printed, program)
    if len(pasted) < at_least:
        sys.exit(f"expected {at_least} commands or more, got {len(pasted)} in:\n{printed}")
    for words in pasted:
        run(empty, *words)


def commands(printed: str, program: Path) -> list[list[str]]:
    """The commands of populora in a text: lines that begin with one, and what stands between backticks. One that names ``populora``
    without its path does not run here, which is the point."""
    lines = [line.strip() for line in printed.splitlines()]
    found = [line for line in lines if re.match(r"(\S*/)?populora [a-z]", line)] + re.findall(r"`((?:\S*/)?populora [^`]*)`", printed)
    return [shlex.split(line) for line in dict.fromkeys(found)]


def run(empty: Path, *command: str) -> str:
    """What a command prints; the end of everything where it fails."""
    print("$", shlex.join(command), flush=True)
    done = subprocess.run(command, cwd=empty, env=bare(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def bare() -> dict[str, str]:
    """A newcomer's environment: no path of this checkout or its environment, no settings of threads or Python."""
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"), "LANG": os.environ.get("LANG", "C.UTF-8")}


if __name__ == "__main__":
    main()
