"""Measure how long a newcomer waits: the README's two commands in a fresh clone without an environment.

    python benchmarks/bare_machine/run.py        writes results.json here; run it on an idle machine

Seconds are wall time and include installing the packages from wherever pip is set up to find them, each time without pip's cache; how
long a download takes depends on that, so the size of what was installed stands beside. ``run_seconds`` and ``make_test_seconds`` are what
`make train` and `make test` take after installing. The clone is of the last commit. A virtual machine whose host is busy shows times that
are not the program's: ``stolen_percent`` says how much of the processors' time went to others.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    before = processor_ticks()
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "populora"
        os.environ["PIP_NO_CACHE_DIR"] = "1"
        seconds("git", "clone", "--quiet", str(HERE.parent.parent), str(clone))
        found = {
            "machine": {"cores": os.cpu_count(), "processor": processor(), "python": platform.python_version()},
            "install_seconds": seconds("make", ".venv/core.stamp", at=clone),
            "run_seconds": seconds("make", "train", at=clone),
        }
        found["make_train_seconds"] = round(found["install_seconds"] + found["run_seconds"], 1)
        run = clone / "runs" / "tiny"
        steps = column(run / "timings.jsonl", "seconds/step")
        found |= {"run_steps": len(steps), "step_2t2s_seconds": round(statistics.median(steps), 2)}
        found["rounds_with_children"] = sum(born > 0 for born in column(run / "metrics.jsonl", "evolution/children"))
        found["installed_megabytes"] = round(sum(file.stat().st_size for file in (clone / ".venv").rglob("*") if file.is_file()) / 1e6)
        (clone / ".venv").rename(clone / ".venv-of-train")
        found["test_install_seconds"] = seconds("make", "setup", at=clone)
        found["make_test_seconds"] = seconds("make", "test", at=clone)
    stolen, all_ticks = (after - start for start, after in zip(before, processor_ticks(), strict=True))
    found["stolen_percent"] = round(100 * stolen / all_ticks, 1)
    (HERE / "results.json").write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


def seconds(*command: str, at: Path | None = None) -> float:
    """Wall time of a command that must succeed."""
    started = time.perf_counter()
    subprocess.run(command, cwd=at, check=True)
    return round(time.perf_counter() - started, 1)


def column(log: Path, name: str) -> list[float]:
    """One value a step of a run's log."""
    return [json.loads(line)[name] for line in log.read_text().splitlines()]


def processor_ticks() -> tuple[int, int]:
    """Since boot, over all cores: what the host of a virtual machine gave to others, and all."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[7], sum(ticks)


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


if __name__ == "__main__":
    main()
