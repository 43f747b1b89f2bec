"""Ask what culling selects: do the ratings of a role's members follow what they earned since the last evolution?

    python -m benchmarks.claims.selection       writes selection.json from measured/; `page.py` makes a table of it

No claim asks this. It was looked at with the verdicts of the first group known, to explain them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from benchmarks.claims.measures import MeasuredRun, Values, read_runs
from benchmarks.claims.protocol import PROTOCOL
from benchmarks.measuring import options, write_results

EVERY = 10
"""Steps between evolutions, in the preset of all arms."""
METRICS = {
    "teacher/reward": "T", "teacher/validity": "T", "teacher/difficulty": "T", "student/solve_rate": "S",
}  # fmt: skip
"""Metrics of members, with the letter of their role."""
COLUMNS = {
    "rating": "correlation over the members of a role between the rating and the mean of the ten steps before an evolution",
    "itself": "the same between the means of every second of these steps and of the others: near 0 they differ by chance alone",
    "replaced": "the mean of all members less that of the one with the lowest rating",
    "lowest": "the mean of all members less the lowest: what a ranking by this metric would replace",
}
"""Column titles and their definitions. Values are means over evolutions and runs."""


def main() -> None:
    folder = options(__doc__, Path(__file__).parent).parse_args().out
    arms = {"4t4s": read_runs(folder / "measured").get("4t4s", ()), "together": read_runs(folder / "measured/ideas").get("together", ())}
    results = {arm: {metric: selection(runs, metric) for metric in METRICS} for arm, runs in arms.items() if runs}
    write_results(folder / "selection.json", {"columns": COLUMNS, "arms": results})


def selection(runs: Sequence[MeasuredRun], metric: str) -> dict[str, float]:
    """Compute the columns of a metric."""
    rows = [values_of(ratings, window) for run in runs for ratings, window in intervals(run, metric)]
    return {name: round(float(np.nanmean([row[name] for row in rows])), 3) for name in COLUMNS}


def intervals(run: MeasuredRun, metric: str) -> Iterator[tuple[Values, Values]]:
    """Yield before each evolution the ratings of a role's members [n], and their metric in the steps since the last one [n, `EVERY`]."""
    names = [name.rpartition("/")[2] for name in run.curves if name.startswith(f"rating/mu/{METRICS[metric]}")]
    ratings, values = (np.array([run.curves[f"{prefix}/{name}"] for name in names]) for prefix in ("rating/mu", metric))
    for step in range(EVERY, PROTOCOL["steps"], EVERY):
        yield ratings[:, step - 1], values[:, step - EVERY : step]


def values_of(ratings: Values, window: Values) -> dict[str, float]:
    """Compute the columns of one interval."""
    means = np.nanmean(window, axis=1)
    return {
        "rating": correlation(ratings, means),
        "itself": correlation(np.nanmean(window[:, ::2], axis=1), np.nanmean(window[:, 1::2], axis=1)),
        "replaced": float(means.mean() - means[np.argmin(ratings)]),
        "lowest": float(means.mean() - means.min()),
    }


def correlation(first: Values, second: Values) -> float:
    """Return Pearson's correlation; NaN where one side is constant or lacks a value."""
    constant = min(np.ptp(first), np.ptp(second)) == 0
    return float("nan") if constant else float(np.corrcoef(first, second)[0, 1])


if __name__ == "__main__":
    main()
