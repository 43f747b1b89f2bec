"""Tabulate the ideas of `protocol.toml` from `measured/ideas/`, and name those that its rule takes once all runs are there.

    python -m benchmarks.claims.ideas       writes ideas.json and ideas.md; `run.py --ideas` trains the runs

Before all runs are there, ``taken`` is null.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from benchmarks.claims.measures import LAST, MeasuredRun, read_runs, weakest_validity
from benchmarks.claims.protocol import PROTOCOL
from benchmarks.measuring import options, write_results

COLUMNS = {
    "accuracy": "validation accuracy: mean over solvers, of the problems that no teacher of any run proposed",
    "least valid": "validity of proposals in the last steps, of the teacher and type that has the lowest",
    "difficulty": "1 - solve rate of valid problems in the last steps",
    "lines": "lines of code of programs proposed in the last steps",
    "sampled": "millions of sampled tokens",
    "CPU minutes": "of all processes of a run",
}
"""Column titles and their definitions."""
IDEAS = PROTOCOL["ideas"]


def main() -> None:
    args = options(__doc__, Path(__file__).parent).parse_args()
    arms = read_runs(args.out / "measured/ideas")
    proposed = {place for runs in arms.values() for run in runs for place in run.facts["contaminated"]["validation"]}
    values = {arm: [values_of(run, proposed) for run in runs] for arm, runs in arms.items()}
    means = {arm: {name: round(float(np.mean([each[name] for each in of_arm])), 4) for name in COLUMNS} for arm, of_arm in values.items()}
    counts = {arm: len(of_arm) for arm, of_arm in values.items()}
    results = {"columns": COLUMNS, "runs": counts, "left_out": len(proposed), "means": means, "taken": taken(means, counts)}
    write_results(args.out / "ideas.json", results)
    (args.out / "ideas.md").write_text(table(means, counts), encoding="utf-8")


def values_of(run: MeasuredRun, proposed: set[int]) -> dict[str, float]:
    """Compute the columns of a run. ``proposed`` are the places of the problems that are left out."""
    verdicts = run.greedy("validation")
    return {
        "accuracy": float(np.mean(np.delete(verdicts, sorted(proposed), axis=1))),
        "least valid": weakest_validity(run),
        "difficulty": float(np.nanmean(run.curves["teacher/difficulty"][-LAST:])),
        "lines": float(np.nanmean(run.curves["teacher/loc"][-LAST:])),
        "sampled": float(np.sum(run.sampled)) / 1e6,
        "CPU minutes": run.facts["cpu_seconds"] / 60,
    }


def taken(means: Mapping[str, Mapping[str, float]], counts: Mapping[str, int]) -> list[str] | None:
    """List the ideas that the rule puts together, the best first. None before all runs are there."""
    if any(counts.get(arm, 0) < len(IDEAS["seeds"]) for arm in [*IDEAS["references"], *IDEAS["arms"]]):
        return None
    gains = {name: means[name]["accuracy"] - means["4t4s"]["accuracy"] for name in IDEAS["arms"]}
    chosen: list[str] = []
    for name in sorted(gains, key=lambda name: -gains[name]):
        excluded = any(name in group and set(group) & set(chosen) for group in IDEAS["alike"])
        if gains[name] >= IDEAS["better"] and not excluded:
            chosen.append(name)
    return chosen[:3]


def table(means: Mapping[str, Mapping[str, float]], counts: Mapping[str, int]) -> str:
    """Return Markdown: a row an arm, the arms that ideas are compared with first."""
    names: Sequence[str] = [name for name in [*IDEAS["references"], *IDEAS["arms"]] if name in means]
    lines = [f"| arm | runs | {' | '.join(COLUMNS)} |", "|---" * (2 + len(COLUMNS)) + "|"]
    lines += [f"| {name} | {counts[name]} | {' | '.join(f'{means[name][column]:.3g}' for column in COLUMNS)} |" for name in names]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
