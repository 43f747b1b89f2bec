"""Verdicts on each child from the curves: pure functions of finished cells, and the table.

A rate is the share of correct samples. A child, its frozen parent and its control attempt the same problems in every step, so differences
are taken step by step. For a child of two parents each task counts against the parent that was trained on it.
A parent that learned nothing has nothing to retain, and every child of it "recovers" at once. There is thus a verdict only where the parent
is surely ahead of the bare base. Intervals are not corrected for their number: of many comparisons at 95 %, one in twenty errs.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from populora.adapters.operators import get_operator
from populora.evals.retention.grid import BASE, FRESH, FROZEN
from populora.evals.retention.settings import CONTROLS, RetentionConfig, Variant

Rates = NDArray[np.float64]
CONFIDENCE = 0.95
Interval = tuple[float, float, float]
"""Mean, and the ends of its interval at `CONFIDENCE` (Student's t over seeds), which are infinite for a single seed."""


@dataclass(frozen=True)
class ChildMeasures:
    """One child on one task in one cell; pass rates in [0, 1]. ``end`` is over the last `RetentionConfig.window` steps."""

    child: str
    task: str
    seed: int
    snapshot: int
    gain: float
    """The parent's rate minus the bare base's, before the children are trained."""
    initial: float
    """The child's rate before any step, minus the parent's on the same problems."""
    recovered: int | None
    area_lost: float
    """Sum over the steps of the parent's rate minus the child's; negative where the child learned beyond its parent."""
    end: float
    """The child's rate at the end, minus the parent's."""
    kept: float
    """The child's rate at the end, minus ``recovered_share`` of the parent's; above 0 the child has recovered."""
    against_control: float
    """Mean over the steps of the child's rate minus the control's; ``against_fresh`` is against an adapter that began anew."""
    against_fresh: float


MEASURES = ("gain", "initial", "area_lost", "end", "kept", "against_control", "against_fresh")


def rates(cell: Mapping[str, Any], adapter: str, task: str, problems: int, samples: int) -> Rates:
    """Compute the pass rate of an adapter in each step, over the first ``problems`` of the task."""
    return np.array([sum(step[adapter][task][:problems]) for step in cell["curve"]]) / (problems * samples)


def recovered(child: Rates, parent: Rates, share: float, window: int) -> int | None:
    """Find the first step from which the mean of ``window`` steps and, against chance, of all the rest are at the parent's ``share``."""
    lead = child - share * parent
    for updates in range(len(lead) - window + 1):
        if lead[updates : updates + window].mean() >= 0 and lead[updates:].mean() >= 0:
            return updates
    return None


def cell_measures(config: RetentionConfig, cell: Mapping[str, Any]) -> list[ChildMeasures]:
    """Measure every child of a finished cell on each of its tasks."""
    return [
        _measures(config, cell, child, index, task)
        for child in config.children()
        for index, task in enumerate(config.parents[: child.arity])
    ]


def _measures(config: RetentionConfig, cell: Mapping[str, Any], child: Variant, index: int, task: str) -> ChildMeasures:
    problems = config.prompts // child.arity
    names = (child.name, FROZEN[index], CONTROLS[child.arity], FRESH[child.arity - 1])
    rate, parent, control, fresh = (rates(cell, name, task, problems, config.samples) for name in names)
    first, parent_first, base_first = (initial_rate(config, cell, name, task) for name in (*names[:2], BASE))
    last = slice(-config.window, None)
    return ChildMeasures(
        child.name, task, cell["seed"], cell["snapshot"],
        gain=parent_first - base_first,
        initial=first - parent_first,
        recovered=recovered(rate, parent, config.recovered_share, config.window),
        area_lost=float((parent - rate).sum()),
        end=float((rate - parent)[last].mean()),
        kept=float((rate - config.recovered_share * parent)[last].mean()),
        against_control=float((rate - control).mean()),
        against_fresh=float((rate - fresh).mean()),
    )  # fmt: skip


def initial_rate(config: RetentionConfig, cell: Mapping[str, Any], adapter: str, task: str) -> float:
    """Compute the pass rate of an adapter before any step."""
    return sum(cell["initial"][adapter][task]) / (config.initial_problems * config.samples)


def t_interval(values: Sequence[float]) -> Interval:
    """Compute the mean and its interval. ``values`` are not empty."""
    mean = float(np.mean(values))
    if len(values) == 1:
        return mean, -np.inf, np.inf
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(values) - 1) * stats.sem(values))
    return mean, mean - half, mean + half


def versus(difference: Interval, margin: float) -> str:
    """Return ``equal`` where the interval is within the margin, ``better`` or ``worse`` where it excludes 0, else ``undecided``."""
    _, low, high = difference
    if -margin < low and high < margin:
        return "equal"
    return "better" if low > 0 else "worse" if high < 0 else "undecided"


def verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    """Judge one child: it ``retains`` if it surely ends at its parent's share on every task, ``loses`` if surely below on one."""
    if any(np.isinf(row["gain"][1]) for row in rows):
        return "undecided"  # a single seed decides nothing
    if any(row["gain"][1] <= 0 for row in rows):
        return "nothing to retain"
    if any(row["kept"][2] < 0 for row in rows):
        return "loses"
    return "retains" if all(row["kept"][1] > 0 for row in rows) else "undecided"


def summary(config: RetentionConfig, measures: Sequence[ChildMeasures], snapshot: int) -> list[dict[str, Any]]:
    """Build a row for each child and task over the seeds of one snapshot."""
    rows: list[dict[str, Any]] = []
    for child in config.children():
        by_task: defaultdict[str, list[ChildMeasures]] = defaultdict(list)
        for item in measures:
            if (item.child, item.snapshot) == (child.name, snapshot):
                by_task[item.task].append(item)
        of_child = [_row(config, items) for items in by_task.values()]
        rows += [{**row, "verdict": verdict(of_child)} for row in of_child]
    return rows


def _row(config: RetentionConfig, measures: Sequence[ChildMeasures]) -> dict[str, Any]:
    """Compute the intervals over the seeds of one child on one task."""
    child, columns = measures[0].child, {name: t_interval([getattr(item, name) for item in measures]) for name in MEASURES}
    control = "" if child in CONTROLS.values() else versus(columns["against_control"], config.margin)
    updates = [item.recovered for item in measures]
    row = {"child": child, "task": measures[0].task, "seeds": len(measures), "recovered": updates}
    return {**row, "versus_control": control, **columns}


COLUMNS = (
    "child", "task", "before training, to the parent", "of the gain kept then", "updates until recovered", "area lost, points x steps",
    "at the end, to the parent", "verdict", "all steps, to the control", "all steps, to a fresh adapter",
)  # fmt: skip


def table(config: RetentionConfig, rows: Sequence[Mapping[str, Any]]) -> str:
    """Write a Markdown line for each row of the `summary`; pass rates in points of 100."""
    gains = {row["task"]: row["gain"] for row in rows}
    ahead = ", ".join(f"{_points(gains[task])} on {task}" for task in config.parents if task in gains)
    seeds = max((row["seeds"] for row in rows), default=0)
    head = (
        f"Snapshot of step {config.repeated}, {config.retrain_steps} steps of retraining, {seeds} seed(s). Pass rates in points of 100, "
        f"with their 95 % interval over the seeds, not corrected for their number. The parents are ahead of the bare base by {ahead}.\n"
    )
    lines = [head, f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(_columns(row))} |" for row in rows)]) + "\n"


def _columns(row: Mapping[str, Any]) -> list[str]:
    gain, control = row["gain"][0], row["child"] in CONTROLS.values()
    name, *words = row["child"].split()
    return [
        name if control else " ".join([name, get_operator(name).alias.replace("_", " "), *words]),
        row["task"],
        _points(row["initial"]),
        f"{100 * (1 + row['initial'][0] / gain):.0f} %" if gain > 0 else "",
        ", ".join("never" if updates is None else str(updates) for updates in row["recovered"]),
        _points(row["area_lost"]),
        _points(row["end"]),
        row["verdict"],
        "" if control else f"{_points(row['against_control'])} {row['versus_control']}",
        _points(row["against_fresh"]),
    ]


def _points(value: Interval) -> str:
    mean, low, high = (100 * part for part in value)
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]" if math.isfinite(low) else f"{mean:+.1f}"
