"""Compare two readings each of two rules on the tiny base: the mean that whitening subtracts, and who wins by unsolved problems.

    python -m benchmarks.readings.run [--seeds 3] [--jobs 2] [--only batch prompt]      adds the runs that results.json lacks

`batch` and `prompt` are `learner.centring` in the preset `tiny` with three proposals a prompt, `teacher` and `nobody` are `league.unsolved`
in `tiny_4t4s`. Each run is `populora train` in a process of its own, ``jobs`` at a time. Numbers are means over the last 20 of 60 steps. A
member has lost a type if less than 10 % of its proposals of it were valid there, or of its answers well-formed. ``culled_reward`` and
``parents_reward`` are the mean reward of teachers that were replaced, or became parents, over the interval before, less that of all
teachers.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean, stdev
from threading import Lock
from typing import Any

from benchmarks.measuring import POPULORA, machine, options, write_results

from populora import load_run
from populora.core.types import TASK_TYPES
from populora.runs.metrics_log import read_log
from populora.runs.reader import RunDirectory

GROUPS = ("--selfplay.prompts-per-type", "4", "--selfplay.samples-per-prompt", "3")
"""As many proposals as in the preset, but three a prompt: with one alone, `learner.centring` concerns students only."""
ARMS = {
    "batch": ("tiny", 60, *GROUPS, "--learner.centring", "batch"),
    "prompt": ("tiny", 60, *GROUPS, "--learner.centring", "prompt"),
    "teacher": ("tiny_4t4s", 60, "--league.unsolved", "teacher"),
    "nobody": ("tiny_4t4s", 60, "--league.unsolved", "nobody"),
}
"""Preset, steps and the setting of each arm."""
BY_TYPE = ("teacher/validity", "student/format_rate")
METRICS = (
    "teacher/difficulty", "teacher/rho_zero", "teacher/reward", "teacher/loc", "student/solve_rate", "student/response_length", *BY_TYPE,
    *(f"{name}/{task}" for name in BY_TYPE for task in TASK_TYPES),
)  # fmt: skip
LAST, LOST = 20, 0.1
Line = Mapping[str, float]


def main() -> None:
    parser = options(__doc__, Path(__file__).with_name("results.json"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=list(ARMS), choices=list(ARMS))
    args = parser.parse_args()
    runs: list[dict[str, Any]] = json.loads(args.out.read_text())["runs"] if args.out.exists() else []
    done = {(run["arm"], run["seed"]) for run in runs}
    missing = [(arm, seed) for seed in range(args.seeds) for arm in args.only if (arm, seed) not in done]
    about, lock = {"machine": machine("populora", "torch")}, Lock()

    def add(arm: str, seed: int) -> None:
        run = train(arm, seed)
        with lock:
            runs.append(run)
            runs.sort(key=lambda run: (list(ARMS).index(run["arm"]), run["seed"]))
            write_results(args.out, {**about, "means": means(runs), "runs": runs})

    with ThreadPoolExecutor(args.jobs) as jobs:
        list(jobs.map(add, *zip(*missing, strict=True)) if missing else ())


def train(arm: str, seed: int) -> dict[str, Any]:
    """Train with one seed and reduce the run to its numbers."""
    preset, steps, *settings = ARMS[arm]
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--seed", str(seed), "--steps", str(steps), "--evaluation.every", str(steps), "--out", f"{folder}/run"]
        subprocess.run([*POPULORA, "train", preset, *flags, *settings], check=True, stdout=subprocess.DEVNULL)
        log = read_log(Path(folder, "run"))
        return {"arm": arm, "seed": seed, **numbers(log), **rewards_of_bred(load_run(f"{folder}/run"))}


def numbers(log: Sequence[Line]) -> dict[str, Any]:
    """Return the means over the last steps, the lost types, held-out accuracy after the first and the last step, and evolution's counts."""
    end = log[-LAST:]
    held_out = [line["held_out/accuracy"] for line in log if "held_out/accuracy" in line]
    return {
        **{name: round(fmean(values), 4) for name in METRICS if (values := [line[name] for line in end if name in line])},
        "lost_by_teachers": lost(end, "teacher/validity"),
        "lost_by_students": lost(end, "student/format_rate"),
        "held_out": [round(held_out[0], 4), round(held_out[-1], 4)],
        **{name: int(sum(line[f"evolution/{name}"] for line in log)) for name in ("children", "spared", "broken")},
    }


def lost(end: Iterable[Line], metric: str) -> list[str]:
    """Name the types that a member has lost, as ``T0/code_f``."""
    values: dict[str, list[float]] = {}
    for line in end:
        for name, value in line.items():
            if name.startswith(f"{metric}/") and name.count("/") == 3:
                values.setdefault(name.removeprefix(f"{metric}/"), []).append(value)
    return sorted(name for name, shares in values.items() if fmean(shares) < LOST)


def rewards_of_bred(run: RunDirectory) -> dict[str, Any]:
    """Return how the reward of teachers that were replaced, and of those that became parents, differs from the mean of all."""
    every = run.config.evolution.every
    proposals, children = run.table("proposals").to_pylist(), run.table("children").to_pylist()
    differences: dict[str, list[float]] = {"culled_reward": [], "parents_reward": []}
    for child in (child for child in children if child["member"].startswith("T")):
        rewards: dict[str, list[float]] = {}
        for row in proposals:
            if child["step"] - every < row["step"] <= child["step"] and row["reward"] is not None:
                rewards.setdefault(row["author"], []).append(row["reward"])
        means = {author: fmean(values) for author, values in rewards.items()}
        differences["culled_reward"].append(means[child["member"]] - fmean(means.values()))
        parents = [means[parent.partition("#")[0]] for parent in child["parents"]]
        differences["parents_reward"].append(fmean(parents) - fmean(means.values()))
    return {name: [round(value, 4) for value in values] for name, values in differences.items()}


def means(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return for each arm the mean over seeds and its standard error; lists are joined first, and lost types counted."""
    table: dict[str, Any] = {}
    for arm in dict.fromkeys(run["arm"] for run in runs):
        rows = [run for run in runs if run["arm"] == arm]
        table[arm] = {"seeds": len(rows)}
        for name in (name for name in rows[0] if name not in ("arm", "seed")):
            if name.startswith("lost"):
                table[arm][name] = sum(len(row[name]) for row in rows)
                continue
            joined = name.endswith("_reward")
            values = [value for row in rows for value in row[name]] if joined else [row[name] for row in rows if name in row]
            if name == "held_out":
                values = [last for _, last in values]
            if values:
                error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
                table[arm][name] = [round(fmean(values), 4), round(error, 4)]
    return table


if __name__ == "__main__":
    main()
