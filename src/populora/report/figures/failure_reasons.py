"""The reasons of rejected proposals and failed answers."""

from collections import Counter
from typing import Any

import numpy as np

from populora.report.arms import Arm
from populora.report.drawing import PALE, Drawing, categorical_colours, mean_of_shared, panels, trailing
from populora.report.figure import Figure, MissingFigure, Study, describe_runs
from populora.report.run_data import Array, RunData, Steps

REASONS = ("reasons", "Why proposals were rejected and answers failed", "")
COLOURED, OTHERS = 9, "others"
"""Number of reasons with a colour of their own; label of the rest."""
SIDES = {"teacher/rejected": "proposals rejected", "student/failed": "answers failed"}
Shares = dict[str, Array]


def reasons_figure(study: Study) -> Figure | MissingFigure:
    """Draw the shares of rejected proposals and of failed answers by reason, stacked."""
    several = len(study.domains) > 1
    parts = [(arm, domain) for domain in study.domains for arm in study.arms if domain in arm.runs[0].config.domains]
    rows = [
        {"arm": arm.label, "run": run.name, **({"domain": domain} if several else {}), "side": title, "reason": reason, "step": step,
         "share": value}
        for arm, domain in parts
        for run in arm.runs
        for side, title in SIDES.items()
        for reason, values in shares(run, side, domain).items()
        for step, value in zip(run.metrics.steps.tolist(), values.tolist(), strict=True)
    ]  # fmt: skip
    if not rows:
        return MissingFigure(*REASONS, "no run has counts of reasons")
    return Figure(
        *REASONS,
        definition=(
            "Share of the step's proposals that was rejected (left), and of its answers that failed (right; void ones and those that only "
            f"fill a batch left out), by reason, stacked. The {COLOURED} most frequent reasons have a colour; trailing means. "
            "A reason such as error:exception is the sandbox's verdict; the tables hold the exception's name."
            + (" Each domain has its own rows, with its own proposals and answers as the whole." if several else "")
        ),
        source="metrics.jsonl: teacher/rejected/REASON, teacher/validity, student/failed/REASON, student/solve_rate",
        runs=f"{describe_runs(study.arms)}; mean over an arm's runs, trailing means over {study.smooth} steps",
        rows=rows,
        drawing=lambda: _draw_reasons(parts, study.smooth),
    )


def shares(run: RunData, side: str, domain: str) -> Shares:
    """Return the share [steps] of a domain's proposals (``teacher/rejected``) or counted answers (``student/failed``) by reason.

    Counts are scaled to 1 - validity and 1 - solve rate: every rejected proposal and every failed answer has a reason.
    """
    log, ending = run.metrics, run.ending(domain)
    names = [name for name in log.under(side) if name.endswith(ending)]
    counts = {name.removesuffix(ending): np.nan_to_num(log.get(f"{side}/{name}")) for name in names}
    lost = 1 - log.get(("teacher/validity" if side == "teacher/rejected" else "student/solve_rate") + ending)
    total = np.sum(list(counts.values()), axis=0) if counts else np.zeros(len(log.steps))
    scale = np.divide(np.nan_to_num(lost), total, out=np.zeros(len(lost)), where=total > 0)
    return {reason: values * scale for reason, values in counts.items()}


def _draw_reasons(parts: list[tuple[Arm, str]], smooth: int) -> Drawing:
    drawing, axes = panels(len(parts), 2, width=4.4, height=1.9, sharex=True)
    for column, (side, title) in enumerate(SIDES.items()):
        several = len({domain for _, domain in parts}) > 1
        runs = [[(run.metrics.steps, shares(run, side, domain)) for run in arm.runs] for arm, domain in parts]
        totals: Counter[str] = Counter()
        for by_reason in (by_reason for of_part in runs for _, by_reason in of_part):
            totals.update({reason: float(values.sum()) for reason, values in by_reason.items()})
        reasons = [reason for reason, _ in totals.most_common()]
        colours = {**categorical_colours(reasons[:COLOURED]), OTHERS: PALE}
        groups = {reason: [reason] for reason in reasons[:COLOURED]} | ({OTHERS: reasons[COLOURED:]} if reasons[COLOURED:] else {})
        for axis, (arm, domain), of_part in zip(axes[:, column], parts, runs, strict=True):
            _draw_arm(axis, of_part, groups, colours, smooth)
            axis.set(title=f"{title}: {arm.label}" + (f", {domain}" if several else ""), ylabel="share", ylim=(0, None))
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
    layers: dict[str, tuple[Steps, Array]] = {}
    for label, reasons in groups.items():
        sums = [np.zeros(len(steps)) + sum(by_reason.get(reason, 0.0) for reason in reasons) for steps, by_reason in runs]
        layers[label] = mean_of_shared([(steps, trailing(values, smooth)) for (steps, _), values in zip(runs, sums, strict=True)])
    steps, averages = next(iter(layers.values()))[0], [np.nan_to_num(values) for _, values in layers.values()]
    axis.stackplot(steps, *averages, colors=[colours[label] for label in layers], labels=list(layers), linewidth=0)
