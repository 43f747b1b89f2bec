"""What the curves say of each child: pure functions of finished cells.

A rate is the share of correct samples; a child, its parent (frozen) and its control meet the same problems in every step, so differences
are taken step by step. For a child of two parents each task counts against the parent that was trained on it.

A parent that learned nothing has nothing to retain, and every child of it "recovers" at once: verdicts are spoken only where the parent
is surely ahead of the bare base. Every interval stands for itself: of many comparisons at 95 %, one in twenty errs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from populora.evals.retention.grid import BASE, FRESH, FROZEN
from populora.evals.retention.settings import CONTROLS, RetentionConfig
from populora.evals.retention.variants import Variant

Rates = NDArray[np.float64]
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Retention:
    """One child on one task in one cell; pass rates in [0, 1]. ``end``: over the last `RetentionConfig.window` steps."""

    child: str
    task: str
    seed: int
    snapshot: int
    gain: float
    """Of the parent over the bare base, at the birth of the children: what there is to retain."""
    birth: float
    """Of the child before any step, minus the parent's on the same problems."""
    recovered: int | None
    """Updates after which the child has the share of its parent's rate for good (`recovered`)."""
    area_lost: float
    """Sum over the steps of the parent's rate minus the child's: negative where the child learned beyond its parent."""
    end: float
    """At the end, minus the parent's there."""
    kept: float
    """At the end, minus ``recovered_share`` of the parent's there: above 0 the child is back."""
    against_control: float
    """Mean over the steps of the child's rate minus the control's."""
    against_fresh: float
    """The same against an adapter that began anew."""


def rates(cell: Mapping[str, Any], pupil: str, task: str, problems: int, samples: int) -> Rates:
    """Pass rate of a pupil in each step, over the first ``problems`` of the task."""
    return np.array([sum(step[pupil][task][:problems]) for step in cell["curve"]]) / (problems * samples)


def trailing(values: Rates, window: int) -> Rates:
    """Mean of each value and up to ``window - 1`` before it."""
    sums = np.concatenate(([0.0], values.cumsum()))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


def recovered(child: Rates, parent: Rates, share: float, window: int) -> int | None:
    """Number of updates after which the child is at ``share`` of its parent for good: the earliest step from which both the mean of
    ``window`` steps and the mean of all the rest are there.

    A rule that takes the first good window finds one by chance in a long noisy curve; a child that stays clearly below must not count.
    """
    lead = child - share * parent
    for updates in range(len(lead) - window + 1):
        if lead[updates : updates + window].mean() >= 0 and lead[updates:].mean() >= 0:
            return updates
    return None


def cell_retention(config: RetentionConfig, cell: Mapping[str, Any]) -> list[Retention]:
    """Every child of a finished cell on each of its tasks."""
    return [
        _measured(config, cell, child, index, task)
        for child in config.children()
        for index, task in enumerate(config.parents[: child.arity])
    ]


def _measured(config: RetentionConfig, cell: Mapping[str, Any], child: Variant, index: int, task: str) -> Retention:
    problems = config.prompts // child.arity
    names = (child.name, FROZEN[index], CONTROLS[child.arity], FRESH[child.arity - 1])
    own, parent, control, fresh = (rates(cell, name, task, problems, config.samples) for name in names)
    at_birth = {name: sum(cell["birth"][name][task]) / (config.birth_problems * config.samples) for name in (*names[:2], BASE)}
    last = slice(-config.window, None)
    return Retention(
        child.name, task, cell["seed"], cell["snapshot"],
        gain=at_birth[FROZEN[index]] - at_birth[BASE],
        birth=at_birth[child.name] - at_birth[FROZEN[index]],
        recovered=recovered(own, parent, config.recovered_share, config.window),
        area_lost=float((parent - own).sum()),
        end=float((own - parent)[last].mean()),
        kept=float((own - config.recovered_share * parent)[last].mean()),
        against_control=float((own - control).mean()),
        against_fresh=float((own - fresh).mean()),
    )  # fmt: skip


Interval = tuple[float, float, float]
"""Mean, and the ends of its interval at `CONFIDENCE` (Student's t over seeds); they are infinite for a single seed."""


def interval(values: Sequence[float]) -> Interval:
    """Raises ``ValueError`` for no values."""
    if not values:
        raise ValueError("expected at least one value, got none")
    mean = float(np.mean(values))
    if len(values) == 1:
        return mean, -np.inf, np.inf
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(values) - 1) * stats.sem(values))
    return mean, mean - half, mean + half


Versus = Literal["", "equal", "better", "worse", "undecided"]
Verdict = Literal["nothing to retain", "retains", "loses", "undecided"]


def versus(difference: Interval, margin: float) -> Versus:
    """``equal`` where the interval lies within the margin, ``better`` or ``worse`` where it excludes 0, else ``undecided``."""
    _, low, high = difference
    if -margin < low and high < margin:
        return "equal"
    return "better" if low > 0 else "worse" if high < 0 else "undecided"


def verdict(rows: Sequence[Mapping[str, Any]]) -> Verdict:
    """Of one child over all its tasks: it ``retains`` if it surely ends at the share of the parent's rate on every task, and ``loses``
    if it surely ends below on one. There has to be something to retain on every task."""
    if any(np.isinf(row["gain"][1]) for row in rows):
        return "undecided"  # a single seed decides nothing
    if any(row["gain"][1] <= 0 for row in rows):
        return "nothing to retain"
    if any(row["kept"][2] < 0 for row in rows):
        return "loses"
    return "retains" if all(row["kept"][1] > 0 for row in rows) else "undecided"


MEASURES = ("gain", "birth", "area_lost", "end", "kept", "against_control", "against_fresh")


def summary(config: RetentionConfig, cells: Sequence[Mapping[str, Any]], snapshot: int) -> list[dict[str, Any]]:
    """A row for each child and task over the seeds of one snapshot."""
    found = [one for cell in cells if cell["snapshot"] == snapshot for one in cell_retention(config, cell)]
    rows: list[dict[str, Any]] = []
    for child in config.children():
        own = [_row(config, child, [one for one in found if (one.child, one.task) == (child.name, task)]) for task in config.parents]
        own = [row for row in own if row]
        rows += [{**row, "verdict": verdict(own)} for row in own]
    return rows


def _row(config: RetentionConfig, child: Variant, own: Sequence[Retention]) -> dict[str, Any]:
    """Intervals over the seeds of one child on one task; nothing if it has no cell, or no part in the task."""
    if not own:
        return {}
    columns = {name: interval([getattr(one, name) for one in own]) for name in MEASURES}
    said: Versus = "" if child.name in CONTROLS.values() else versus(columns["against_control"], config.margin)
    updates = [one.recovered for one in own]
    return {"child": child.name, "task": own[0].task, "seeds": len(own), "recovered": updates, "versus_control": said, **columns}


def everywhere(config: RetentionConfig, cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every child of every finished cell on each of its tasks, as plain values."""
    return [asdict(one) for cell in cells for one in cell_retention(config, cell)]
