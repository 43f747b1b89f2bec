"""What the curves say of each operator: pure functions of finished cells.

A rate is the share of correct samples; a child, its parent (frozen) and its control meet the same problems in every step, so differences
are taken step by step. For a child of two parents each task counts against the parent that was trained on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from populora.operators import get_operator
from populora.retention.grid import FRESH, FROZEN
from populora.retention.settings import CONTROLS, RetentionConfig

Rates = NDArray[np.float64]
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Retention:
    """One child on one task in one cell; pass rates in [0, 1]."""

    operator: str
    task: str
    seed: int
    snapshot: int
    birth: float
    """Of the child in its first step, minus that of its parent."""
    recovered: int | None
    """First step whose trailing mean (`RetentionConfig.window`) reaches the share of the parent's; none: not within the retraining."""
    area_lost: float
    """Sum over the steps of the parent's rate minus the child's: negative where the child learned beyond its parent."""
    against_control: float
    """Mean over the steps of the child's rate minus the control's."""
    against_fresh: float
    """The same against an adapter that began anew."""
    final: float
    """Mean rate of the last `RetentionConfig.window` steps, minus the parent's there."""


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
    """First step, from 1 on, at which the child's trailing mean is at least ``share`` of the parent's."""
    reached = np.flatnonzero(trailing(child, window) >= share * trailing(parent, window))
    return int(reached[0]) + 1 if len(reached) else None


def cell_retention(config: RetentionConfig, cell: Mapping[str, Any]) -> list[Retention]:
    """Every child of a finished cell on each of its tasks."""
    found: list[Retention] = []
    for name in config.children():
        arity = get_operator(name).arity
        for index, task in enumerate(config.parents[:arity]):
            child, parent, control, fresh = (
                rates(cell, pupil, task, config.prompts // arity, config.samples)
                for pupil in (name, FROZEN[index], CONTROLS[arity], FRESH[arity - 1])
            )
            last = slice(-config.window, None)
            found.append(
                Retention(
                    name, task, cell["seed"], cell["snapshot"], float(child[0] - parent[0]),
                    recovered(child, parent, config.recovered_share, config.window), float((parent - child).sum()),
                    float((child - control).mean()), float((child - fresh).mean()), float(child[last].mean() - parent[last].mean()),
                )
            )  # fmt: skip
    return found


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


Verdict = Literal["control", "equal", "better", "worse", "undecided"]


def verdict(against_control: Interval, margin: float) -> Verdict:
    """``equal`` where the interval lies within the margin, ``better`` or ``worse`` where it excludes 0, else ``undecided``."""
    _, low, high = against_control
    if -margin < low and high < margin:
        return "equal"
    return "better" if low > 0 else "worse" if high < 0 else "undecided"


def summary(config: RetentionConfig, cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each operator and task over the seeds of the repeated snapshot."""
    found = [one for cell in cells if cell["snapshot"] == config.repeated for one in cell_retention(config, cell)]
    rows: list[dict[str, Any]] = []
    for name in config.children():
        for task in config.parents[: get_operator(name).arity]:
            own = [one for one in found if (one.operator, one.task) == (name, task)]
            if own:
                columns = {key: interval([getattr(one, key) for one in own]) for key in MEASURES}
                steps = [one.recovered for one in own]
                said = "control" if name in CONTROLS.values() else verdict(columns["against_control"], config.margin)
                rows.append({"operator": name, "task": task, "seeds": len(own), "recovered": steps, "verdict": said, **columns})
    return rows


MEASURES = ("birth", "area_lost", "against_control", "against_fresh", "final")


def everywhere(config: RetentionConfig, cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every child of every finished cell on each of its tasks, as plain values."""
    return [asdict(one) for cell in cells for one in cell_retention(config, cell)]
