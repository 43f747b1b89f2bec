"""Difficulty and held-out accuracy by what a run has spent: steps, sampled tokens, seconds. A population samples N times as much a step."""

from collections.abc import Callable
from typing import Any

import numpy as np

from populora.report.drawing import WHOLE_RUN, Drawing, curves_of, legend, line_styles, mean, panels, stack, trailing
from populora.report.figure import Figure, MissingFigure, Study, describe_runs
from populora.report.run_data import Array, RunData
from populora.runs.style import CAPTIONS

FIGURE = ("equal_compute", "At equal steps, tokens and time", "")
METRICS = ("teacher/difficulty", "held_out/accuracy")


def _minutes(run: RunData) -> Array:
    timings = dict(zip(run.timings.steps.tolist(), run.timings.get("seconds/step").tolist(), strict=True))
    return np.cumsum([timings.get(step, np.nan) for step in run.metrics.steps.tolist()]) / 60


SPENT: dict[str, Callable[[RunData], Array]] = {
    "step": lambda run: run.metrics.steps.astype(float),
    "million_tokens": lambda run: np.cumsum(run.metrics.get("tokens/propose") + run.metrics.get("tokens/solve")) / 1e6,
    "minutes": _minutes,
}
"""What a run has spent after each step that it logged [n]; NaN where that is not on record."""
TITLES = {"step": "steps", "million_tokens": "million sampled tokens", "minutes": "minutes"}


def equal_compute_figure(study: Study) -> Figure | MissingFigure:
    """Draw both metrics of each arm against each kind of spending."""
    not_begun, study = study.not_begun, study.begun
    rows = spending_rows(study)
    if not rows:
        return MissingFigure(*FIGURE, f"no run has {' or '.join(METRICS)}")
    return Figure(
        *FIGURE,
        definition=(
            "The mean over an arm's runs, against the mean of what they have spent at that step: steps, tokens of all responses, and wall "
            f"time of all steps. Difficulty is smoothed over {study.smooth} steps. Held-out accuracy is that of evaluations in training. "
            f"Compare times of runs only if they ran alike, on equal and otherwise idle hardware.{not_begun}"
        ),
        source=f"metrics.jsonl: {', '.join(METRICS)}, tokens/propose, tokens/solve; timings.jsonl: seconds/step",
        runs=describe_runs(study.arms),
        rows=rows,
        drawing=lambda: _draw(study, rows),
    )


def spending_rows(study: Study) -> list[dict[str, Any]]:
    """Return a row for each arm, metric and step that all runs of the arm have: the mean value, and the means of what was spent."""
    rows: list[dict[str, Any]] = []
    for arm in study.arms:
        spent = {name: dict(zip(arm.runs, map(measure, arm.runs), strict=True)) for name, measure in SPENT.items()}
        for metric in METRICS:
            whole = [curve for curve in curves_of([arm], metric) if curve.member == WHOLE_RUN]
            if len(whole) < len(arm.runs):
                continue
            steps, values = stack([(curve.steps, trailing(curve.values, study.smooth if metric == METRICS[0] else 1)) for curve in whole])
            for place in np.flatnonzero(np.isfinite(values).all(0)):
                means = {
                    name: float(np.mean([measured[run][run.metrics.steps == steps[place]][0] for run in arm.runs]))
                    for name, measured in spent.items()
                }
                rows.append({"arm": arm.label, "metric": metric, **means, "value": float(mean(values)[place])})
    return rows


def _draw(study: Study, rows: list[dict[str, Any]]) -> Drawing:
    metrics = [metric for metric in METRICS if any(row["metric"] == metric for row in rows)]
    drawing, axes = panels(len(metrics), len(SPENT), width=3.3, height=2.1)
    lines = line_styles(study.arms)
    for row_of_axes, metric in zip(axes, metrics, strict=True):
        for axis, name in zip(row_of_axes, SPENT, strict=True):
            for arm in study.arms:
                points = [(row[name], row["value"]) for row in rows if (row["arm"], row["metric"]) == (arm.label, metric)]
                marker = "o" if metric != METRICS[0] else ""
                axis.plot(*np.array(points).reshape(-1, 2).T, lines[arm.label], marker=marker, markersize=3, color=arm.colour)
            axis.set_xlabel(TITLES[name])
        row_of_axes[0].set_ylabel(CAPTIONS[metric])
    legend(drawing, study.arms)
    return drawing
