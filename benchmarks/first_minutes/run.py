"""Show what the first run of a newcomer shows: `populora train` (the tiny preset) with several seeds.

    python benchmarks/first_minutes/run.py [--seeds 5] [--jobs 2]      writes results.json here; two cores, 20 minutes
    python benchmarks/first_minutes/run.py --out benchmarks/first_minutes/half_rate.json -- --learner.learning-rate 3e-3

The second is the rate that the preset had before: its 32 steps show less. Seconds are of runs beside each other; `benchmarks/bare_machine`
has those of one alone.

Each run is the command in a process of its own, ``jobs`` at a time. For each seed the file has the sentences of the closing summary, with
the numbers behind them; at the end, how many seeds show each change beyond its error (`populora.runs.highlights`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean

from populora.core.installed import processor, versions
from populora.runs.metrics_log import TIMINGS, read_log
from populora.runs.summary import summarise

RESULTS = Path(__file__).with_name("results.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("settings", nargs="*", help="after `--`: further settings of the runs, such as --steps 48")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.jobs) as jobs:
        runs = list(jobs.map(lambda seed: run_tiny(seed, Path(folder) / str(seed), args.settings), range(args.seeds)))
    verdicts = Counter(sentence.partition(":")[0] for run in runs for sentence in run["sentences"])
    machine = {"cores": os.cpu_count(), "processor": processor(), **versions(("populora", "torch"))}
    results = {"machine": machine, "jobs": args.jobs, "settings": args.settings, "seeds_with": verdicts, "runs": runs}
    args.out.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(verdicts, indent=1))


def run_tiny(seed: int, folder: Path, settings: list[str]) -> dict[str, object]:
    """Train with one seed; what the closing summary says, and its numbers."""
    command = [sys.executable, "-m", "populora.cli.main", "train", "--seed", str(seed), "--out", str(folder), *settings]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    log, summary = read_log(folder), summarise(folder)
    quarter = len(log) // 4
    ends = {name: [round(fmean(line[name] for line in part), 3) for part in (log[:quarter], log[-quarter:])] for name in QUARTERS}
    held_out = {str(int(line["step"])): round(line["held_out/accuracy"], 4) for line in log if "held_out/accuracy" in line}
    seconds = round(sum(line["seconds/step"] for line in read_log(folder, TIMINGS)))
    print(f"seed {seed}, {seconds} s", *summary.highlights, sep="\n  ", flush=True)
    return {"seed": seed, "seconds": seconds, "sentences": summary.highlights, **ends, "held_out/accuracy": held_out}


QUARTERS = ("teacher/difficulty", "teacher/loc", "teacher/cyclomatic", "teacher/validity", "student/response_length")
"""Metrics whose means over the first and the last quarter of the steps are kept."""


if __name__ == "__main__":
    main()
