"""Arms against the baseline: means of the last tenth of the steps, a run a sample, with Welch's interval over seeds."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from populora.report.figure import Absent, Figure, Study, shown
from populora.report.loading import RunData
from populora.runlog.style import CAPTIONS

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

NAME, TITLE = "comparison", "Arms compared over seeds"
METRICS = (
    "student/solve_rate",
    "teacher/difficulty",
    "teacher/validity",
    "teacher/loc",
    "teacher/cyclomatic",
    "teacher/ast_depth",
    "teacher/variables",
    "archive/coverage",
    "student/response_length",
    "teacher/response_length",
    "held_out/accuracy",
)
Values = dict[str, list[float]]


def comparison_figure(study: Study) -> Figure | Absent:
    """Each arm's values, a dot a run, and differences to the first baseline with 95 % intervals."""
    if len(study.arms) < 2:
        return Absent(NAME, TITLE, "it compares arms: give runs of two or more, such as `--baseline RUN`")
    rows = comparison(study)
    if not rows:
        return Absent(NAME, TITLE, "no metric was logged in two arms")
    alone = [arm.label for arm in study.arms if len(arm.runs) < 2]
    return Figure(
        name=NAME,
        title=TITLE,
        definition=(
            "A dot is a run: the mean of its last tenth of steps (of what was not measured in them, the last value). The bar is the arm's "
            "mean. "
            f"Above an arm: its difference to {study.arms[0].label} and Welch's 95 % interval over runs, each for one comparison "
            "alone, without a correction for their number."
            + (f" No interval with {', '.join(alone)}: a single run says nothing about how much seeds differ." if alone else "")
        ),
        source=f"metrics.jsonl: {', '.join(METRICS)}",
        shown=shown(study.arms),
        rows=rows,
        draw=lambda: _draw(study, rows),
    )


def comparison(study: Study) -> list[dict[str, Any]]:
    """A row a metric and arm: its runs' values, their mean, and the difference to the first arm with its interval."""
    rows: list[dict[str, Any]] = []
    for metric in METRICS:
        values = {arm.label: [one for run in arm.runs if (one := at_the_end(run, metric)) is not None] for arm in study.arms}
        first = values[study.arms[0].label]
        if not first:
            continue
        for label, own in values.items():
            if own:
                low, high = welch(own, first) if label != study.arms[0].label else (None, None)
                rows.append(
                    {
                        "metric": metric,
                        "arm": label,
                        "runs": len(own),
                        "mean": float(np.mean(own)),
                        "values": " ".join(f"{one:.6g}" for one in own),
                        "difference": float(np.mean(own) - np.mean(first)),
                        "low": low,
                        "high": high,
                    }
                )
    return rows


def at_the_end(run: RunData, metric: str) -> float | None:
    """The mean of a metric over the last tenth of a run's steps; where none of them has it, the last value."""
    values = run.metrics.get(metric)
    last = values[-max(1, len(values) // 10) :]
    last = last[np.isfinite(last)] if np.isfinite(last).any() else values[np.isfinite(values)][-1:]
    return float(last.mean()) if len(last) else None


def welch(ours: list[float], theirs: list[float]) -> tuple[float | None, float | None]:
    """95 % interval of the difference of means by Welch's t; none with fewer than two runs in an arm, or where nothing differs."""
    if min(len(ours), len(theirs)) < 2 or np.ptp(ours) + np.ptp(theirs) == 0:
        return None, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an arm whose runs are equal to rounding
        interval = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    return float(interval.low), float(interval.high)


def _draw(study: Study, rows: list[dict[str, Any]]) -> Drawing:
    from populora.report.drawing import legend, panels

    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    drawing, axes = panels(-(-len(metrics) // 4), 4, height=1.7)
    for axis in axes.flat[len(metrics) :]:
        axis.set_axis_off()
    colours = {arm.label: arm.colour for arm in study.arms}
    for axis, metric in zip(axes.flat, metrics, strict=False):
        own = [row for row in rows if row["metric"] == metric]
        for x, row in enumerate(own):
            values = [float(one) for one in row["values"].split()]
            axis.plot([x] * len(values), values, "o", color=colours[row["arm"]], markersize=4, alpha=0.7)
            axis.plot([x - 0.25, x + 0.25], [row["mean"]] * 2, color=colours[row["arm"]], linewidth=2)
            if row["low"] is not None:
                axis.annotate(
                    f"{row['difference']:+.2g}\n[{row['low']:+.2g}, {row['high']:+.2g}]",
                    (x, max(values)),
                    (0, 4),
                    textcoords="offset points",
                    ha="center",
                    fontsize=6,
                )
        axis.set(title=CAPTIONS.get(metric, metric), xlim=(-0.6, len(own) - 0.4), xticks=[])
        axis.margins(y=0.35)
    legend(drawing, study.arms)
    return drawing
