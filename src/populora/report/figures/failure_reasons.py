"""The reasons of rejected proposals and failed answers."""

from collections import Counter
from typing import Any

import numpy as np

from populora.report.arms import Arm
from populora.report.drawing import PALE, Drawing, categorical_colours, mean, panels, stack, trailing
from populora.report.figure import Figure, MissingFigure, Study, describe_runs
from populora.report.run_data import Array, RunData, Steps

REASONS = ("reasons", "Why proposals were rejected and answers failed", "")
COLOURED, OTHERS = 9, "others"
"""Number of reasons with a colour of their own; label of the rest."""
SIDES = {"teacher/rejected": "proposals rejected", "student/failed": "answers failed"}
Shares = dict[str, Array]


def reasons_figure(study: Study) -> Figure | MissingFigure:
    """Draw the shares of rejected proposals and of failed answers by reason, stacked."""
    arms = study.arms
    rows = [
        {"arm": arm.label, "run": run.name, "side": title, "reason": reason, "step": step, "share": value}
        for arm in arms
        for run in arm.runs
        for side, title in SIDES.items()
        for reason, values in shares(run, side).items()
        for step, value in zip(run.metrics.steps.tolist(), values.tolist(), strict=True)
    ]
    if not rows:
        return MissingFigure(*REASONS, "no run has counts of reasons")
    return Figure(
        *REASONS,
        definition=(
            "Share of the step's proposals that was rejected (left), and of its answers that failed (right; void ones and those that only "
            f"fill a batch left out), by reason, stacked. The {COLOURED} most frequent reasons have a colour; trailing means. "
            "A reason such as error:exception is the sandbox's verdict; the tables hold the exception's name."
        ),
        source="metrics.jsonl: teacher/rejected/REASON, teacher/validity, student/failed/REASON, student/solve_rate",
        runs=f"{describe_runs(arms)}; mean over an arm's runs, trailing means over {study.smooth} steps",
        rows=rows,
        draw=lambda: _draw_reasons(arms, study.smooth),
    )


def shares(run: RunData, side: str) -> Shares:
    """Return the share [steps] of proposals (``teacher/rejected``) or counted answers (``student/failed``) by reason.

    Counts are scaled to 1 - validity and 1 - solve rate: every rejected proposal and every failed answer has a reason.
    """
    log = run.metrics
    counts = {reason: np.nan_to_num(log.get(f"{side}/{reason}")) for reason in log.under(side)}
    lost = 1 - log.get("teacher/validity" if side == "teacher/rejected" else "student/solve_rate")
    total = np.sum(list(counts.values()), axis=0) if counts else np.zeros(len(log.steps))
    scale = np.divide(np.nan_to_num(lost), total, out=np.zeros(len(lost)), where=total > 0)
    return {reason: values * scale for reason, values in counts.items()}


def _draw_reasons(arms: tuple[Arm, ...], smooth: int) -> Drawing:
    drawing, axes = panels(len(arms), 2, width=4.4, height=1.9, sharex=True)
    for column, (side, title) in enumerate(SIDES.items()):
        runs = {arm.label: [(run.metrics.steps, shares(run, side)) for run in arm.runs] for arm in arms}
        totals: Counter[str] = Counter()
        for by_reason in (by_reason for of_arm in runs.values() for _, by_reason in of_arm):
            totals.update({reason: float(values.sum()) for reason, values in by_reason.items()})
        reasons = [reason for reason, _ in totals.most_common()]
        colours = {**categorical_colours(reasons[:COLOURED]), OTHERS: PALE}
        groups = {reason: [reason] for reason in reasons[:COLOURED]} | ({OTHERS: reasons[COLOURED:]} if reasons[COLOURED:] else {})
        for axis, arm in zip(axes[:, column], arms, strict=True):
            _draw_arm(axis, runs[arm.label], groups, colours, smooth)
            axis.set(title=f"{title}: {arm.label}", ylabel="share", ylim=(0, None))
        handles, labels = axes[0, column].get_legend_handles_labels()
        if handles:
            axes[0, column].legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=6)  # as stacked
        axes[-1, column].set_xlabel("step")
    return drawing


def _draw_arm(axis: Any, runs: list[tuple[Steps, Shares]], groups: dict[str, list[str]], colours: dict[str, Any], smooth: int) -> None:
    """Draw a layer for each group of reasons: the mean over runs of the smoothed sum of their shares."""
    if not groups:  # in the first steps of a run every proposal may be accepted
        axis.text(0.5, 0.5, "none", ha="center", color=PALE, transform=axis.transAxes)
        return
    layers: Shares = {}
    steps = np.unique(np.concatenate([run_steps for run_steps, _ in runs]))
    for label, reasons in groups.items():
        sums = [np.zeros(len(run_steps)) + sum(by_reason.get(reason, 0.0) for reason in reasons) for run_steps, by_reason in runs]
        _, smoothed = stack([(run_steps, trailing(values, smooth)) for (run_steps, _), values in zip(runs, sums, strict=True)])
        layers[label] = np.nan_to_num(mean(smoothed))
    axis.stackplot(steps, *layers.values(), colors=[colours[label] for label in layers], labels=list(layers), linewidth=0)
