"""Compare the two means that whitening may subtract on the tiny base: does one lose formats less often?

    python -m benchmarks.readings.centring [--seeds 3] [--jobs 2]      adds the runs that centring.json lacks; half an hour

The arms are the values of `learner.centring` in the preset `tiny`, with three proposals a prompt. Each run is `populora train` in a process
of its own, ``jobs`` at a time. Numbers are means over the last 20 of 60 steps. A member has lost a type if less than 10 % of its proposals
of it were valid there, or of its answers well-formed. ``broken`` counts teachers that had less than 10 % of a type between two evolutions.
``means`` has the mean over seeds and its standard error, and the sum of the types that were lost.
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

from populora.core.types import CODE_TYPES
from populora.runs.metrics_log import read_log

ARMS = ("batch", "prompt")
STEPS, LAST, LOST = 60, 20, 0.1
GROUPS = ("--selfplay.prompts-per-type", "4", "--selfplay.samples-per-prompt", "3")
"""As many proposals as in the preset, but three a prompt: with one alone, `learner.centring` concerns students only."""
BY_TYPE = ("teacher/validity", "student/format_rate")
METRICS = (
    "teacher/difficulty", "teacher/rho_zero", "teacher/reward", "teacher/loc", "student/solve_rate", "student/response_length", *BY_TYPE,
    *(f"{name}/{task}" for name in BY_TYPE for task in CODE_TYPES),
)  # fmt: skip
Line = Mapping[str, float]


def main() -> None:
    parser = options(__doc__, Path(__file__).with_name("centring.json"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    known: dict[str, Any] = json.loads(args.out.read_text()) if args.out.exists() else {"runs": []}
    earlier = {"machine": known["machine"]} if "machine" in known else {}  # older files have one machine for all runs
    runs: list[dict[str, Any]] = [{**run, **earlier} for run in known["runs"]]
    done = {(run["arm"], run["seed"]) for run in runs}
    missing = [(arm, seed) for seed in range(args.seeds) for arm in ARMS if (arm, seed) not in done]
    about, lock = {"machine": machine("populora", "torch")}, Lock()

    def add(arm: str, seed: int) -> None:
        run = {**train(arm, seed), **about}
        with lock:
            runs.append(run)
            runs.sort(key=lambda run: (run["arm"], run["seed"]))
            write_results(args.out, {"means": means(runs), "runs": runs})

    with ThreadPoolExecutor(args.jobs) as jobs:
        list(jobs.map(lambda pair: add(*pair), missing))


def train(arm: str, seed: int) -> dict[str, Any]:
    """Train with one seed and reduce the run to its numbers."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--seed", str(seed), "--steps", str(STEPS), "--evaluation.every", str(STEPS), "--out", f"{folder}/run"]
        command = [*POPULORA, "train", "tiny", *flags, *GROUPS, "--learner.centring", arm]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return {"arm": arm, "seed": seed, **numbers(read_log(Path(folder, "run")))}


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


def means(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return for each arm the mean over seeds and its standard error; of held-out accuracy that of the end, of lost types the sum."""
    table: dict[str, Any] = {}
    for arm in ARMS:
        rows = [{**run, "held_out": run["held_out"][-1]} for run in runs if run["arm"] == arm]
        table[arm] = {"seeds": len(rows)}
        for name in (name for name in rows[0] if name not in ("arm", "seed", "machine")) if rows else ():
            values = [row[name] for row in rows]
            error = stdev(values) / len(values) ** 0.5 if len(values) > 1 and not name.startswith("lost") else 0.0
            table[arm][name] = sum(map(len, values)) if name.startswith("lost") else [round(fmean(values), 4), round(error, 4)]
    return table


if __name__ == "__main__":
    main()
