"""Compute accounting as in the paper's table, and the seconds of a step by phase."""

from statistics import mean
from typing import Any

import numpy as np

from populora.evals.text_table import ABSENT, TextCell, TextRow, TextTable
from populora.report.arms import Arm
from populora.report.drawing import Drawing, categorical_colours, panels
from populora.report.figure import Figure, MissingFigure, Study, describe_runs
from populora.report.run_data import Array

WARM_UP = 5
"""Steps that the paper's table leaves out."""
UNTIMED = "no run has timings.jsonl"
COMPUTE = ("compute", "Compute accounting", "Table 2 (compute accounting)")
TIMINGS = ("phase_timings", "Where a step's seconds go", "")
PHASES = ("matchmaking", "propose", "solve", "wait", "update", "publish", "store", "evaluate", "evolve", "sync_check", "write")


def compute_figure(study: Study) -> Figure | MissingFigure:
    """Draw the seconds of a step and of an adapter's step, and their ratio to the first baseline."""
    rows = compute(study)
    if not rows:
        return MissingFigure(*COMPUTE, UNTIMED)
    return Figure(
        *COMPUTE,
        definition=(
            f"Median seconds of a step over all runs of an arm, without each run's first {WARM_UP} if there are more. Adapter-step: that "
            "divided by the adapters trained. Steps are those that a run is set to, hours the median times these. Ratio: to the first "
            "baseline that was timed. Only arms that ran alike, on equal and otherwise idle hardware, can be compared."
        ),
        source="timings.jsonl: seconds/step; config.json: population, steps",
        runs=describe_runs([arm for arm in study.arms if any(row["arm"] == arm.label for row in rows)]),
        rows=rows,
        drawing=lambda: _draw_compute(study, rows),
        tables=(_table(rows),),
    )


def compute(study: Study) -> list[dict[str, Any]]:
    """Return the table's rows, one for each arm that was timed."""
    rows: list[dict[str, Any]] = []
    baseline: dict[str, Any] = {}
    for arm in study.arms:
        seconds = np.concatenate([_without_warm_up(run.timings.get("seconds/step")) for run in arm.runs])
        if not len(seconds):
            continue
        median, adapters = float(np.median(seconds)), arm.adapters
        steps = mean(run.config.steps for run in arm.runs)
        row = {
            "arm": arm.label, "adapters": adapters, "steps": steps, "adapter_steps": adapters * steps, "seconds_per_step": median,
            "seconds_per_adapter_step": median / adapters, "hours": median * steps / 3600,
        }  # fmt: skip
        baseline = baseline or (row if arm.baseline else {})
        for ratio, key in (("ratio", "seconds_per_step"), ("ratio_per_adapter", "seconds_per_adapter_step")):
            row[ratio] = row[key] / baseline[key] if baseline else None
        rows.append({**row, "steps_timed": len(seconds)})
    return rows


def _without_warm_up(seconds: Array) -> Array:
    finite = seconds[np.isfinite(seconds)]
    return finite[WARM_UP:] if len(finite) > WARM_UP else finite


def _table(rows: list[dict[str, Any]]) -> TextTable:
    columns = {
        "adapters": "adapters", "steps": "steps", "adapter_steps": "adapter-steps", "hours": "hours",
        "seconds_per_step": "s/step", "seconds_per_adapter_step": "s/adapter-step",
        "ratio": "ratio/step", "ratio_per_adapter": "ratio/adapter-step",
    }  # fmt: skip
    return TextTable(
        caption="Compute of each arm",
        groups=(("one run", 4), ("median seconds", 2), ("to the baseline", 2)),
        columns=tuple(columns.values()),
        blocks=(tuple(TextRow(row["arm"], tuple(TextCell(_number(row[key])) for key in columns)) for row in rows),),
    )


def _number(value: float | None) -> str:
    """Format a count without decimals, a measurement with two decimals or, if it is small, two digits."""
    if value is None:
        return ABSENT
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}" if value >= 0.1 else f"{value:.2g}"


def _draw_compute(study: Study, rows: list[dict[str, Any]]) -> Drawing:
    colours = {arm.label: arm.colour for arm in study.arms}
    titles = {"seconds_per_step": "seconds a step", "seconds_per_adapter_step": "seconds an adapter-step"}
    if any(row["ratio"] for row in rows):
        titles["ratio"] = "ratio to the baseline"
    drawing, axes = panels(1, len(titles), width=3.0, height=0.5 + 0.35 * len(rows))
    for axis, (key, title) in zip(axes[0], titles.items(), strict=True):
        values = [row[key] for row in rows]
        bars = axis.barh([row["arm"] for row in rows], values, color=[colours[row["arm"]] for row in rows], height=0.6)
        axis.bar_label(bars, [f"{value:.2f}" for value in values], padding=2, fontsize=7)
        axis.set(title=title, xlim=(0, 1.2 * max(values) or 1), ylim=(len(rows) - 0.4, -0.6))
        axis.grid(visible=False, axis="y")
        if axis is not axes[0, 0]:
            axis.set_yticklabels([])
    return drawing


def timings_figure(study: Study) -> Figure | MissingFigure:
    """Draw the seconds by phase over the steps."""
    arms = [arm for arm in study.arms if len(arm.runs[0].timings.steps)]
    if not arms:
        return MissingFigure(*TIMINGS, UNTIMED)
    rows = [
        {"arm": arm.label, "run": arm.runs[0].name, "phase": phase, "step": step, "seconds": value}
        for arm in arms
        for phase, values in _phases(arm).items()
        for step, value in zip(arm.runs[0].timings.steps.tolist(), values.tolist(), strict=True)
    ]
    return Figure(
        *TIMINGS,
        definition=(
            "Seconds of each step by phase, stacked. Seconds in which proposals and answers were decoded together are divided by their "
            "tokens. wait: the sampler waited for verdicts. write: records, metrics and the checkpoint of the step before."
        ),
        source="timings.jsonl: seconds/PHASE",
        runs=f"the first run of each arm; {describe_runs(arms)}",
        rows=rows,
        drawing=lambda: _draw_timings(arms),
    )


def _phases(arm: Arm) -> dict[str, Array]:
    log = arm.runs[0].timings
    phases = [phase for phase in (*PHASES, *log.under("seconds")) if f"seconds/{phase}" in log.columns and phase != "step"]
    return {phase: np.nan_to_num(log.get(f"seconds/{phase}")) for phase in phases}


def _draw_timings(arms: list[Arm]) -> Drawing:
    drawing, axes = panels(1, len(arms), width=max(3.0, 8.4 / len(arms)), height=2.2)
    colours = categorical_colours(list(dict.fromkeys(phase for arm in arms for phase in _phases(arm))))
    for axis, arm in zip(axes[0], arms, strict=True):
        phases = _phases(arm)
        phase_colours = [colours[phase] for phase in phases]
        axis.stackplot(arm.runs[0].timings.steps, *phases.values(), colors=phase_colours, labels=list(phases), linewidth=0)
        axis.set(title=arm.label, xlabel="step", ylabel="seconds")
    handles, labels = axes[0, -1].get_legend_handles_labels()
    drawing.legend(handles[::-1], labels[::-1], loc="outside right center")  # as they are stacked
    return drawing
