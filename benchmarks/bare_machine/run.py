"""Measure how long a newcomer waits: the README's two commands in a fresh clone without an environment.

    python -m benchmarks.bare_machine.run        writes results.json here; run it on an idle machine

The clone is of the last commit. Seconds are wall time and include installing the packages, with empty caches of pip and of populora.
``run_seconds`` and ``make_test_seconds`` are the times of `make train` and `make test` after installing.
"""

import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measuring import ROOT, machine, noise, options, write_results


def main() -> None:
    args = options(__doc__, Path(__file__).with_name("results.json")).parse_args()
    about = {"machine": machine()}
    with tempfile.TemporaryDirectory() as folder:
        results, disturbance = noise(lambda: measure(Path(folder) / "populora"))
    write_results(args.out, {**about, **results, "stolen_percent": disturbance["stolen_percent"]})


def measure(clone: Path) -> dict[str, Any]:
    """Clone, install, train and test."""
    os.environ |= {"PIP_NO_CACHE_DIR": "1", "XDG_CACHE_HOME": str(clone.with_name("cache"))}
    seconds("git", "clone", "--quiet", str(ROOT), str(clone))
    results: dict[str, Any] = {"install_seconds": seconds("make", ".venv/core.stamp", cwd=clone)}
    results["run_seconds"] = seconds("make", "train", cwd=clone)
    results["make_train_seconds"] = round(results["install_seconds"] + results["run_seconds"], 1)
    (clone / ".venv").rename(clone / ".venv-of-train")
    results["test_install_seconds"] = seconds("make", "setup", cwd=clone)
    results["make_test_seconds"] = seconds("make", "test", cwd=clone)
    return results


def seconds(*command: str, cwd: Path | None = None) -> float:
    """Return the wall time of a command that must succeed."""
    started = time.perf_counter()
    subprocess.run(command, cwd=cwd, check=True)
    return round(time.perf_counter() - started, 1)


if __name__ == "__main__":
    main()
