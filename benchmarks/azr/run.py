"""Train the single agent by the settings of Absolute Zero's released code beside ours, on the tiny base, and compare their last steps.

    python -m benchmarks.azr.run [--seeds 3] [--jobs 2]      writes results.json here

``schedule`` is our baseline with Absolute Zero's solver schedule and nothing else of it. Each run is a command in a process of its own,
with one thread, ``jobs`` at a time. ``against`` has the differences to our baseline of means over the last quarter of the steps, and of
held-out accuracy at the end, each with Welch's 95 % interval over seeds, for one comparison alone. Times are not compared.
"""

import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean

from benchmarks.first_run.summarise import differences
from benchmarks.measuring import POPULORA, machine, options, write_results

from populora.core.types import CODE_TYPES
from populora.runs.metrics_log import read_log

ARMS = {
    "baseline": ["tiny_baseline"],
    "azr": ["tiny_azr"],
    "azr_high_rate": ["tiny_azr", "--learner.learning-rate", "6e-3"],  # our baseline's
    "schedule": ["tiny_baseline", "--selfplay.previous-step-attempts", "1"],
}
"""Preset and further settings of each arm."""
QUARTERS = (
    "teacher/difficulty", "teacher/loc", "teacher/cyclomatic", "student/solve_rate", "teacher/validity",
    *(f"teacher/validity/{task}" for task in CODE_TYPES), "student/response_length",
)  # fmt: skip
"""Metrics whose means over the first and the last quarter of the steps are kept."""
HELD_OUT = ("held_out/accuracy", *(f"held_out/A0/{task}" for task in CODE_TYPES))
"""Metrics that are kept after the first step and after the last."""
TOKENS = ("tokens/propose", "tokens/solve", "tokens/update")
"""Tokens of a step, of which the run's sums are kept: sampled as proposer, sampled as solver, trained on."""


def main() -> None:
    parser = options(__doc__, Path(__file__).with_name("results.json"))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=sorted(ARMS), choices=sorted(ARMS), help="arms to run")
    parser.add_argument("settings", nargs="*", help="after `--`: further settings of all runs, such as --learner.learning-rate 3e-3")
    args = parser.parse_args()
    about = {"machine": machine("populora", "torch"), "steps": args.steps, "settings": args.settings, "arms": ARMS}
    names = [f"{arm}-{seed}" for seed in range(args.seeds) for arm in ARMS if arm in args.only]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.jobs) as jobs:
        measured = jobs.map(lambda name: train(name, Path(folder) / name, args.steps, args.settings), names)
        runs = dict(zip(names, measured, strict=True))
    others = [arm for arm in ARMS if arm in args.only and arm != "baseline"] if "baseline" in args.only else []
    against = {arm: differences(runs, arm, "baseline", list(runs[f"{arm}-0"])) for arm in others}
    by_seed = {arm: [runs[f"{arm}-{seed}"] for seed in range(args.seeds)] for arm in ARMS if arm in args.only}
    ends = {arm: {metric: merge([run[metric] for run in group]) for metric in group[0]} for arm, group in by_seed.items()}
    write_results(args.out, {**about, "against": against, "ends_by_seed": ends})


def train(name: str, folder: Path, steps: int, settings: Sequence[str]) -> dict[str, dict[str, float]]:
    """Train one arm with one seed; return the ends of its metrics and the sums of its tokens."""
    arm, seed = name.rsplit("-", 1)
    flags = ["--seed", seed, "--steps", str(steps), "--threads", "1", "--evaluation.every", str(steps), "--out", str(folder)]
    subprocess.run([*POPULORA, "train", *ARMS[arm], *flags, *settings], check=True, stdout=subprocess.DEVNULL)
    log = read_log(folder)
    quarter = len(log) // 4
    parts = {"first": log[:quarter], "last": log[-quarter:]}
    ends = {metric: {when: mean(part, metric) for when, part in parts.items()} for metric in QUARTERS}
    ends |= {metric: {"first": round(log[0][metric], 4), "last": round(log[-1][metric], 4)} for metric in HELD_OUT}
    return ends | {metric: {"last": sum(line[metric] for line in log)} for metric in TOKENS}


def merge(ends: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    """Turn one dictionary a seed into lists by its keys."""
    return {when: [end[when] for end in ends] for when in ends[0]}


def mean(log: Sequence[dict[str, float]], metric: str) -> float:
    return round(fmean(line[metric] for line in log if metric in line), 4)


if __name__ == "__main__":
    main()
