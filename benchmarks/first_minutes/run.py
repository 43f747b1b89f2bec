"""Run `populora train` (the tiny preset) with several seeds and collect the closing summaries.

    python -m benchmarks.first_minutes.run [--seeds 5] [--jobs 2]      writes results.json here; two cores, 20 minutes
    python -m benchmarks.first_minutes.run --out benchmarks/first_minutes/half_rate.json -- --learner.learning-rate 3e-3

The second has the learning rate of earlier presets: its 32 steps show less. Each run is the command in a process of its own, ``jobs`` at a
time. ``seeds_with`` counts the seeds that show each change beyond its error (`populora.runs.highlights`).
"""

import subprocess
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean

from benchmarks.measuring import POPULORA, machine, options, write_results

from populora.runs.metrics_log import TIMINGS, read_log
from populora.runs.summary import summarise

QUARTERS = ("teacher/difficulty", "teacher/loc", "teacher/cyclomatic", "teacher/validity", "student/response_length")
"""Metrics whose means over the first and the last quarter of the steps are kept."""


def main() -> None:
    parser = options(__doc__, Path(__file__).with_name("results.json"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("settings", nargs="*", help="after `--`: further settings of the runs, such as --steps 48")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.jobs) as jobs:
        runs = list(jobs.map(lambda seed: run_tiny(seed, Path(folder) / str(seed), args.settings), range(args.seeds)))
    verdicts = Counter(sentence.partition(":")[0] for run in runs for sentence in run["sentences"])
    about = {"machine": machine("populora", "torch"), "jobs": args.jobs, "settings": args.settings}
    write_results(args.out, {**about, "seeds_with": verdicts, "runs": runs})


def run_tiny(seed: int, folder: Path, settings: list[str]) -> dict[str, object]:
    """Train with one seed; return the sentences of the closing summary, and their numbers."""
    command = [*POPULORA, "train", "--seed", str(seed), "--out", str(folder), *settings]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    log, summary = read_log(folder), summarise(folder)
    quarter = len(log) // 4
    ends = {name: [round(fmean(line[name] for line in part), 3) for part in (log[:quarter], log[-quarter:])] for name in QUARTERS}
    held_out = {str(int(line["step"])): round(line["held_out/accuracy"], 4) for line in log if "held_out/accuracy" in line}
    seconds = round(sum(line["seconds/step"] for line in read_log(folder, TIMINGS)))
    return {"seed": seed, "seconds": seconds, "sentences": summary.highlights, **ends, "held_out/accuracy": held_out}


if __name__ == "__main__":
    main()
