"""Metrics over steps: one curve a run and member, one for the whole run; and how curves of an arm are drawn in a panel.

A bold line is the mean over an arm's runs of the run's own value (over all of its samples), as far as all have come; the band reaches from
the lowest to the highest member of any run. Both are trailing means over ``smooth`` steps; the CSV has the values as they were logged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from populora.report.arms import Arm
from populora.report.loading import Array

MEMBER = re.compile(r"[TSA]\d+")
WHOLE = "all"
"""Stands for a member where a value is over all of a run's samples."""


@dataclass(frozen=True)
class Curve:
    """One metric of one member, or of the whole run, over its steps [n]; NaN where it is undefined."""

    arm: str
    run: str
    member: str
    metric: str
    steps: NDArray[np.int64]
    values: Array


def curves_of(arms: Iterable[Arm], metric: str, task: str = "") -> list[Curve]:
    """Curves of a metric for whole runs and their members, of one task type alone if given.

    What is logged by member alone (``learner/…``) is for the whole run the mean over its members. Steps that nothing has are undefined, so
    that no line runs across them.
    """
    ending = f"/{task}" if task else ""
    found: list[Curve] = []
    for arm in arms:
        for run in arm.runs:
            log = run.metrics
            members = [one for one in log.under(metric) if MEMBER.fullmatch(one)]
            values = {member: log.get(f"{metric}/{member}{ending}") for member in members}
            if metric + ending in log.columns:
                values[WHOLE] = log.get(metric + ending)
            elif members:
                values[WHOLE] = mean(np.array([values[member] for member in members]))
            steps = np.arange(log.steps[0], log.steps[-1] + 1) if len(log.steps) else log.steps
            found += [
                Curve(arm.label, run.name, member, metric + ending, steps, _spaced(of, log.steps, steps)) for member, of in values.items()
            ]
    return found


def _spaced(values: Array, steps: NDArray[np.int64], onto: NDArray[np.int64]) -> Array:
    found = np.full(len(onto), np.nan)
    found[np.searchsorted(onto, steps)] = values
    return found


def curve_rows(curves: Iterable[Curve]) -> Iterator[dict[str, Any]]:
    """The curves as records; undefined values are left out."""
    for curve in curves:
        for step, value in zip(curve.steps.tolist(), curve.values.tolist(), strict=True):
            if value == value:
                yield {
                    "arm": curve.arm, "run": curve.run, "member": curve.member, "metric": curve.metric, "step": step, "value": value,
                }  # fmt: skip


def trailing(values: Array, window: int) -> Array:
    """Mean [n] of what is defined of the last ``window`` values up to each step; NaN where nothing is."""
    if not len(values):
        return values
    defined, ones = np.isfinite(values), np.ones(min(window, len(values)))
    # Not by differences of running sums: one huge value would then spoil all that come after it.
    sums = np.convolve(np.where(defined, values, 0.0), ones)[: len(values)]
    counts = np.convolve(defined, ones)[: len(values)]
    return np.divide(sums, counts, out=np.full(len(values), np.nan), where=counts > 0)


def stacked(curves: Sequence[Curve]) -> tuple[NDArray[np.int64], Array]:
    """The steps [n] that any of the curves has, and the curves on them [curves, n]."""
    steps = np.unique(np.concatenate([curve.steps for curve in curves]))
    values = np.full((len(curves), len(steps)), np.nan)
    for row, curve in zip(values, curves, strict=True):
        row[np.searchsorted(steps, curve.steps)] = curve.values
    return steps, values


def mean(values: Array) -> Array:
    """Mean over the first axis of what is defined; NaN where nothing is."""
    defined = np.isfinite(values)
    total, number = np.where(defined, values, 0.0).sum(axis=0), defined.sum(axis=0)
    return np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0)
