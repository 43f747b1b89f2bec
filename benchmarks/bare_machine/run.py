"""How long a newcomer waits: the README's two commands in a fresh clone without an environment, and one step of 4T+4S.

    python benchmarks/bare_machine/run.py        writes results.json here; run it on an idle machine

Seconds are wall time and include installing the packages from wherever pip is set up to find them; how long a download takes
depends on that, so the size of what was installed stands beside. The clone is of the last commit.
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
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "populora"
        seconds("git", "clone", "--quiet", str(HERE.parent.parent), str(clone))
        found = {
            "machine": {"cores": os.cpu_count(), "processor": processor(), "python": platform.python_version()},
            "make_train_seconds": seconds("make", "train", at=clone),
        }
        run = steps_of(clone / "runs" / "tiny")
        found |= {"run_seconds": round(sum(run), 1), "run_steps": len(run), "step_2t2s_seconds": round(statistics.median(run), 2)}
        found["installed_megabytes"] = round(sum(file.stat().st_size for file in (clone / ".venv").rglob("*") if file.is_file()) / 1e6)
        (clone / ".venv").rename(clone / ".venv-of-train")
        found["make_test_seconds"] = seconds("make", "test", at=clone)
        large = clone / "runs" / "4t4s"
        seconds(".venv/bin/populora", "train", "configs/tiny_4t4s.toml", "--steps", "12", "--out", str(large), at=clone)
        found["step_4t4s_seconds"] = round(statistics.median(steps_of(large)), 2)
    (HERE / "results.json").write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


def seconds(*command: str, at: Path | None = None) -> float:
    """Wall time of a command that must succeed."""
    started = time.perf_counter()
    subprocess.run(command, cwd=at, check=True)
    return round(time.perf_counter() - started, 1)


def steps_of(run: Path) -> list[float]:
    return [json.loads(line)["seconds/step"] for line in (run / "timings.jsonl").read_text().splitlines()]


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


if __name__ == "__main__":
    main()
