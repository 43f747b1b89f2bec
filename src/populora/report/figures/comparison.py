"""Arms against the baseline: means of the last tenth of the steps that all runs have, a run a sample, with Welch's interval over seeds."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from populora.report.figure import Absent, Figure, Study, shown
from populora.report.loading import RunData
from populora.runs.style import CAPTIONS

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
    first, last = last_tenth(study)
    return Figure(
        name=NAME,
        title=TITLE,
        definition=(
            f"A dot is a run: the mean over the steps {first} to {last}, the last tenth up to the last step that all runs have (of what "
            "was not measured in them, the last value before). The bar is the arm's mean. Below, in an arm's colour: its difference to "
            f"{study.arms[0].label} and Welch's 95 % interval over runs, each for one comparison alone, without a correction for their "
            f"number.{_exceptions(study, rows)}"
        ),
        source=f"metrics.jsonl: {', '.join(METRICS)}",
        shown=f"{shown(study.arms)}; steps {first} to {last}{_longer(study, last)}",
        rows=rows,
        draw=lambda: _draw(study, rows),
    )


def last_tenth(study: Study) -> tuple[int, int]:
    """The first and the last of the steps compared: runs at different steps are not. A run without any step has no say. Raises
    ``ValueError`` where none has one."""
    last = min(int(run.metrics.steps[-1]) for arm in study.arms for run in arm.runs if len(run.metrics.steps))
    return last - max(1, last // 10) + 1, last


def comparison(study: Study) -> list[dict[str, Any]]:
    """A row a metric that two arms or more have, and arm that has it: its runs' values, their mean, and the difference to the first of
    those arms, ``against``, with its interval."""
    rows: list[dict[str, Any]] = []
    for metric, values in _values(study).items():
        if len(values) < 2:
            continue
        against, first = next(iter(values.items()))
        for label, own in values.items():
            low, high = welch(own, first) if label != against else (None, None)
            rows.append({
                "metric": metric, "arm": label, "runs": len(own), "mean": float(np.mean(own)),
                "values": " ".join(f"{one:.6g}" for one in own),
                "against": against, "difference": float(np.mean(own) - np.mean(first)), "low": low, "high": high,
            })  # fmt: skip
    return rows


def _values(study: Study) -> dict[str, Values]:
    """By metric and arm that has it, the value of each run."""
    if not any(len(run.metrics.steps) for arm in study.arms for run in arm.runs):
        return {}
    steps, found = last_tenth(study), dict[str, Values]()
    for metric in METRICS:
        values = {arm.label: [one for run in arm.runs if (one := at_the_end(run, metric, steps)) is not None] for arm in study.arms}
        found[metric] = {label: own for label, own in values.items() if own}
    return found


def at_the_end(run: RunData, metric: str, steps: tuple[int, int]) -> float | None:
    """The mean of a metric from the first to the last of ``steps``; where none of them has it, the last value before."""
    log, (first, last) = run.metrics, steps
    values = log.get(metric)
    before = np.isfinite(values) & (log.steps <= last)
    within = before & (log.steps >= first)
    found = values[within] if within.any() else values[before][-1:]
    return float(found.mean()) if len(found) else None


def _exceptions(study: Study, rows: list[dict[str, Any]]) -> str:
    """What the figure leaves out or compares otherwise, as sentences."""
    text, first = "", study.arms[0].label
    others = dict.fromkeys((row["metric"], row["against"]) for row in rows if row["against"] != first)
    if others:
        text += f" {first} lacks some metrics, where the difference is to another arm: "
        text += ", ".join(f"{metric} to {label}" for metric, label in others) + "."
    lone = [f"{metric} ({next(iter(values))})" for metric, values in _values(study).items() if len(values) == 1]
    text += f" Left out, for one arm alone has it: {', '.join(lone)}." if lone else ""
    alone = [arm.label for arm in study.arms if len(arm.runs) < 2]
    return text + (f" No interval with {', '.join(alone)}: a single run says nothing about how much seeds differ." if alone else "")


def _longer(study: Study, last: int) -> str:
    """Which runs have later steps, which are not compared."""
    ends = {run.name: int(run.metrics.steps[-1]) for arm in study.arms for run in arm.runs if len(run.metrics.steps)}
    longer = [f"{name} to {end}" for name, end in ends.items() if end > last]
    return f" (not compared: what is later, of {', '.join(longer)})" if longer else ""


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
    drawing, axes = panels(-(-len(metrics) // 4), 4, height=1.5 + 0.13 * len(study.arms))
    for axis in axes.flat[len(metrics) :]:
        axis.set_axis_off()
    colours = {arm.label: arm.colour for arm in study.arms}
    for axis, metric in zip(axes.flat, metrics, strict=False):
        own = [row for row in rows if row["metric"] == metric]
        for x, row in enumerate(own):
            values = [float(one) for one in row["values"].split()]
            axis.plot([x] * len(values), values, "o", color=colours[row["arm"]], markersize=4, alpha=0.7)
            axis.plot([x - 0.25, x + 0.25], [row["mean"]] * 2, color=colours[row["arm"]], linewidth=2)
        intervals = [row for row in own if row["low"] is not None]
        for line, row in enumerate(intervals, start=1):
            text = f"{row['difference']:+.2g}  [{row['low']:+.2g}, {row['high']:+.2g}]"
            style = {"ha": "center", "va": "center", "fontsize": 7, "color": colours[row["arm"]]}
            axis.annotate(text, (0.5, 0), (0, -9 * line), "axes fraction", "offset points", **style)
        axis.ticklabel_format(useOffset=False)
        axis.margins(y=0.15)
        if np.ptp([row["mean"] for row in own]) < 1e-6:  # equal but for rounding
            axis.set_ylim(0.9 * own[0]["mean"] - 1e-6, 1.1 * own[0]["mean"] + 1e-6)
        axis.set(title=CAPTIONS.get(metric, metric), xlim=(-0.6, len(own) - 0.4), xticks=[])
    legend(drawing, study.arms)
    return drawing
