"""Run `populora train` with the presets of the tiny base and several seeds; collect closing summaries, times and curves.

    python -m benchmarks.first_minutes.run [--jobs 2]                writes results.json and results/: `tiny`, five seeds
    python -m benchmarks.first_minutes.run --presets tiny_1t1s tiny_baseline tiny_azr --seeds 3 --out benchmarks/first_minutes/others.json

Each run is the command in a process of its own, ``jobs`` at a time. Held-out accuracy is measured every 8 steps instead of 32. That changes
nothing else, and ``seconds`` are without it. ``seeds_with`` counts the seeds that show each change beyond its error
(`populora.runs.highlights`). `docs/curves.py` draws the curves.
"""

import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.measuring import POPULORA, machine, options, write_results

from populora.runs.metrics_log import TIMINGS, read_log
from populora.runs.summary import summarise

PRESETS = ("tiny", "tiny_1t1s", "tiny_4t4s", "tiny_baseline", "tiny_azr")
QUARTERS = ("teacher/difficulty", "teacher/loc", "teacher/cyclomatic", "teacher/validity", "student/response_length")
"""Metrics whose means over the first and the last quarter of the steps are kept."""
HELD_OUT = "held_out/accuracy"


def main() -> None:
    parser = options(__doc__, Path(__file__).with_name("results.json"))
    parser.add_argument("--presets", nargs="+", default=["tiny"], choices=PRESETS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("settings", nargs="*", help="after `--`: further settings of the runs, such as --steps 48")
    args = parser.parse_args()
    about = {"machine": machine("populora", "torch"), "jobs": args.jobs, "settings": args.settings}
    curves = args.out.with_suffix("")
    curves.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.jobs) as jobs:
        measure = partial(measure_run, root=Path(folder), curves=curves, settings=args.settings)
        runs = {preset: jobs.map(partial(measure, preset), range(args.seeds)) for preset in args.presets}
    write_results(args.out, {**about, "presets": {preset: with_counts(list(of_preset)) for preset, of_preset in runs.items()}})


def measure_run(preset: str, seed: int, root: Path, curves: Path, settings: Sequence[str]) -> dict[str, Any]:
    """Train with one seed, and write its curves; return the sentences of the closing summary, and their numbers."""
    folder = root / f"{preset}-{seed}"
    command = [*POPULORA, "train", preset, "--seed", str(seed), "--out", str(folder), "--evaluation.every", "8", *settings]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    log, timings = read_log(folder), read_log(folder, TIMINGS)
    columns = {name: pa.array([line.get(name) for line in log], pa.float32()) for name in (*QUARTERS, HELD_OUT)}
    pq.write_table(pa.table(columns), curves / f"{folder.name}.parquet", compression="zstd")
    quarter = len(log) // 4
    ends = {name: [round(fmean(line[name] for line in part), 3) for part in (log[:quarter], log[-quarter:])] for name in QUARTERS}
    held_out = {str(int(line["step"])): round(line[HELD_OUT], 4) for line in log if HELD_OUT in line}
    seconds = round(sum(line["seconds/step"] - line["seconds/evaluate"] for line in timings))
    return {"seed": seed, "seconds": seconds, "sentences": summarise(folder).highlights, **ends, HELD_OUT: held_out}


def with_counts(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the runs of a preset, and how many of them show each change."""
    return {"seeds_with": Counter(sentence.partition(":")[0] for run in runs for sentence in run["sentences"]), "runs": runs}


if __name__ == "__main__":
    main()
