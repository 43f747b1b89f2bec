"""Why proposals were rejected and answers failed, over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from populora.report.arms import Arm
from populora.report.curves import mean, trailing
from populora.report.figure import Absent, Figure, Study, shown
from populora.report.loading import Array, RunData

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

NAME, TITLE = "reasons", "Why proposals were rejected and answers failed"
NAMED, OTHERS = 9, "others"
"""How many reasons have a colour of their own; what the rest are called."""
Steps = NDArray[np.int64]
SIDES = {"teacher/rejected": "proposals rejected", "student/failed": "answers failed"}


def reasons_figure(study: Study) -> Figure | Absent:
    """Shares of rejected proposals and of failed answers by reason, stacked."""
    arms = study.arms
    rows = [row for arm in arms for run in arm.runs for row in _rows(arm, run)]
    if not rows:
        return Absent(NAME, TITLE, "no run has counts of reasons")
    return Figure(
        name=NAME,
        title=TITLE,
        definition=(
            "Of the step's proposals (left) the share that was rejected, of its answers (right; void ones and those that only fill a "
            f"batch left out) the share that failed, by reason, stacked. The {NAMED} most frequent reasons have a colour; trailing means. "
            "A reason such as error:exception is what the sandbox said; which exception stands in the tables."
        ),
        source="metrics.jsonl: teacher/rejected/REASON, teacher/validity, student/failed/REASON, student/solve_rate",
        shown=f"{shown(arms)}; mean over an arm's runs, trailing means over {study.smooth} steps",
        rows=rows,
        draw=lambda: _draw(arms, study.smooth),
    )


def shares(run: RunData, side: str) -> dict[str, Array]:
    """Share [steps] of proposals (``teacher/rejected``) or counted answers (``student/failed``) by reason.

    Counts are scaled to 1 - validity and 1 - solve rate: every rejected proposal has a reason, and so has every failed answer.
    """
    log = run.metrics
    counts = {reason: np.nan_to_num(log.get(f"{side}/{reason}")) for reason in log.under(side)}
    lost = 1 - log.get("teacher/validity" if side == "teacher/rejected" else "student/solve_rate")
    total = np.sum(list(counts.values()), axis=0) if counts else np.zeros(len(log.steps))
    scale = np.divide(np.nan_to_num(lost), total, out=np.zeros(len(lost)), where=total > 0)
    return {reason: values * scale for reason, values in counts.items()}


def _rows(arm: Arm, run: RunData) -> list[dict[str, Any]]:
    return [
        {"arm": arm.label, "run": run.name, "side": SIDES[side], "reason": reason, "step": step, "share": value}
        for side in SIDES
        for reason, values in shares(run, side).items()
        for step, value in zip(run.metrics.steps.tolist(), values.tolist(), strict=True)
    ]


def _draw(arms: tuple[Arm, ...], smooth: int) -> Drawing:
    from populora.report.drawing import PALE, many, panels

    drawing, axes = panels(len(arms), 2, width=4.4, height=1.9, sharex=True)
    found = {side: {arm.label: [(run.metrics.steps, shares(run, side)) for run in arm.runs] for arm in arms} for side in SIDES}
    sums = {side: _sums([run for runs in own.values() for _, run in runs]) for side, own in found.items()}
    named = {side: list(own)[:NAMED] for side, own in sums.items()}
    both = sorted({reason: sums[side][reason] for side, own in named.items() for reason in own}.items(), key=lambda one: (-one[1], one[0]))
    colours = {**many([reason for reason, _ in both]), OTHERS: PALE}  # the same on both sides, strong ones for what is frequent
    for column, (side, title) in enumerate(SIDES.items()):
        for axis, arm in zip(axes[:, column], arms, strict=True):
            steps = np.unique(np.concatenate([run.metrics.steps for run in arm.runs]))
            layers = {reason: _mean_of(found[side][arm.label], [reason], steps, smooth) for reason in named[side]}
            if rest := list(sums[side])[NAMED:]:
                layers[OTHERS] = _mean_of(found[side][arm.label], rest, steps, smooth)
            if layers:
                axis.stackplot(steps, *layers.values(), colors=[colours[name] for name in layers], labels=list(layers), linewidth=0)
            else:  # in the first steps of a run every proposal may be accepted
                axis.text(0.5, 0.5, "none", ha="center", color=PALE, transform=axis.transAxes)
            axis.set(title=f"{title}: {arm.label}", ylabel="share", ylim=(0, None))
        handles, labels = axes[0, column].get_legend_handles_labels()
        if handles:
            axes[0, column].legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=6)  # as stacked
        axes[-1, column].set_xlabel("step")
    return drawing


def _sums(runs: list[dict[str, Array]]) -> dict[str, float]:
    """Sums over runs and steps by reason, the largest first."""
    sums: dict[str, float] = {}
    for run in runs:
        for reason, values in run.items():
            sums[reason] = sums.get(reason, 0.0) + float(values.sum())
    return {reason: sums[reason] for reason in sorted(sums, key=lambda reason: (-sums[reason], reason))}


def _mean_of(runs: list[tuple[Steps, dict[str, Array]]], reasons: list[str], steps: Steps, smooth: int) -> Array:
    """Mean over runs of the smoothed sum of the shares of some reasons, on ``steps``, which hold those of each run."""
    summed = np.full((len(runs), len(steps)), np.nan)
    for row, (own, found) in zip(summed, runs, strict=True):
        row[np.searchsorted(steps, own)] = trailing(sum((found[one] for one in reasons if one in found), np.zeros(len(own))), smooth)
    return np.nan_to_num(mean(summed))
