"""Tabulate the ideas of `protocol.toml` from `measured/ideas/`, and name those that its rule calls better.

    python -m benchmarks.claims.ideas       writes ideas.json and ideas.md; `run.py --ideas` trains the runs

Two seeds choose what is worth eight more. They are no evidence that an idea works.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from benchmarks.claims.measures import LAST, MeasuredRun, read_run
from benchmarks.claims.protocol import PROTOCOL
from benchmarks.measuring import options, write_results

COLUMNS = {
    "accuracy": "validation accuracy: mean over solvers",
    "least valid": "validity of proposals, of the teacher and type that has the lowest",
    "difficulty": "1 - solve rate of valid problems",
    "lines": "lines of code of proposed programs",
    "tokens": "millions of tokens trained on",
}
"""What is compared, and what it is. Curves are means over the last steps."""


def main() -> None:
    args = options(__doc__, Path(__file__).parent).parse_args()
    files = [file for file in sorted((args.out / "measured/ideas").glob("*.parquet")) if ".answers" not in file.name]
    runs: dict[str, list[dict[str, float]]] = {}
    for file in files:
        runs.setdefault(file.stem.rpartition("-")[0], []).append(values_of(read_run(file)))
    means = {arm: {name: round(float(np.mean([run[name] for run in of_arm])), 4) for name in COLUMNS} for arm, of_arm in runs.items()}
    seeds = {arm: len(of_arm) for arm, of_arm in runs.items()}
    write_results(args.out / "ideas.json", {"columns": COLUMNS, "runs": seeds, "means": means, "better": better(means)})
    (args.out / "ideas.md").write_text(table(means, seeds), encoding="utf-8")


def values_of(run: MeasuredRun) -> dict[str, float]:
    """Compute the columns of a run."""
    validity = [curve for name, curve in run.curves.items() if name.startswith("teacher/validity/") and "code" in name]
    return {
        "accuracy": float(np.nanmean(run.greedy("validation"))),
        "least valid": min(float(np.nanmean(curve[-LAST:])) for curve in validity),
        "difficulty": float(np.nanmean(run.curves["teacher/difficulty"][-LAST:])),
        "lines": float(np.nanmean(run.curves["teacher/loc"][-LAST:])),
        "tokens": float(np.nansum(run.curves["tokens/update"])) / 1e6,
    }


def better(means: Mapping[str, Mapping[str, float]]) -> list[str]:
    """List the ideas that the rule takes, the best first, three at most."""
    ideas = PROTOCOL["ideas"]
    gains = {name: means[name]["accuracy"] - means["4t4s"]["accuracy"] for name in ideas["arms"] if name in means and "4t4s" in means}
    return [name for name in sorted(gains, key=lambda name: -gains[name]) if gains[name] >= ideas["better"]][:3]


def table(means: Mapping[str, Mapping[str, float]], seeds: Mapping[str, int]) -> str:
    """Return Markdown: a row an arm, the arms that ideas are compared with first."""
    ideas = PROTOCOL["ideas"]
    names: Sequence[str] = [name for name in [*ideas["references"], *ideas["arms"]] if name in means]
    lines = [f"| arm | runs | {' | '.join(COLUMNS)} |", "|---" * (2 + len(COLUMNS)) + "|"]
    lines += [f"| {name} | {seeds[name]} | {' | '.join(f'{means[name][column]:.3g}' for column in COLUMNS)} |" for name in names]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
