"""Compute accounting as in the paper's table, and where the seconds of a step go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from populora.report.arms import Arm
from populora.report.figure import Absent, Figure, Study, shown
from populora.report.loading import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

WARM_UP = 5
"""Steps that the paper's table leaves out."""
PHASES = ("matchmaking", "propose", "solve", "wait", "update", "publish", "store", "evaluate", "evolve", "canary", "write")
UNTIMED = "no run has timings.jsonl"


def compute_figure(study: Study) -> Figure | Absent:
    """Seconds a step and an adapter's step, and their ratio to the first baseline."""
    name, title, paper = "compute", "Compute accounting", "Table 2 (compute accounting)"
    rows = compute(study)
    if not rows:
        return Absent(name, title, UNTIMED, paper)
    return Figure(
        name=name,
        title=title,
        definition=(
            f"Median seconds of a step, without each run's first {WARM_UP} where there are more, over all runs of an arm; extrapolated to "
            "the run's steps. Adapter-step: that divided by the adapters trained. Ratio: to the first baseline, where one was timed. "
            "Seconds are those of the machines the runs ran on: only arms that ran alike, on equal hardware and beside nothing else, can "
            "be compared."
        ),
        source="timings.jsonl: seconds/step; config.json: population, steps",
        shown=shown([arm for arm in study.arms if any(row["arm"] == arm.label for row in rows)]),
        rows=rows,
        draw=lambda: _draw_compute(study, rows),
        paper=paper,
    )


def compute(study: Study) -> list[dict[str, Any]]:
    """The table's rows, an arm each; empty where nothing was timed."""
    rows: list[dict[str, Any]] = []
    base: dict[str, Any] = {}
    for arm in study.arms:
        seconds = np.concatenate([_warm(run.timings.get("seconds/step")) for run in arm.runs])
        if len(seconds):
            median, steps = float(np.median(seconds)), arm.runs[0].setting("steps", 0)
            row = {
                "arm": arm.label,
                "adapters": arm.adapters,
                "steps": steps,
                "adapter_steps": arm.adapters * steps,
                "seconds_per_step": median,
                "seconds_per_adapter_step": median / arm.adapters if arm.adapters else None,
                "hours": median * steps / 3600,
            }
            base = base or (row if arm.baseline else {})
            keys = {"ratio": "seconds_per_step", "ratio_per_adapter": "seconds_per_adapter_step"}
            ratios = {ratio: row[key] / base[key] if base.get(key) and row[key] is not None else None for ratio, key in keys.items()}
            rows.append({**row, **ratios, "steps_timed": len(seconds)})
    return rows


def timings_figure(study: Study) -> Figure | Absent:
    """Seconds by phase over the steps."""
    name, title = "phase_timings", "Where a step's seconds go"
    arms = [arm for arm in study.beside(study.main) if len(arm.runs[0].timings.steps)]
    if not arms:
        return Absent(name, title, UNTIMED)
    rows = [
        {"arm": arm.label, "run": arm.runs[0].name, "phase": phase, "step": step, "seconds": value}
        for arm in arms
        for phase, values in _phases(arm).items()
        for step, value in zip(arm.runs[0].timings.steps.tolist(), values.tolist(), strict=True)
    ]
    return Figure(
        name=name,
        title=title,
        definition=(
            "Seconds of each step by phase, stacked. Proposing and solving are one stream of the sampler: seconds in which both were "
            "decoded are divided by their tokens. wait: the sampler waited for verdicts; verification beside it is not stacked. write: "
            "records, metrics and the checkpoint of the step before."
        ),
        source="timings.jsonl: seconds/PHASE",
        shown=f"the first run of each arm; {shown(arms)}",
        rows=rows,
        draw=lambda: _draw_timings(arms),
    )


def _warm(seconds: Array) -> Array:
    kept = seconds[np.isfinite(seconds)]
    return kept[WARM_UP:] if len(kept) > WARM_UP else kept


def _phases(arm: Arm) -> dict[str, Array]:
    log = arm.runs[0].timings
    named = [*(phase for phase in PHASES if f"seconds/{phase}" in log.columns)]
    others = [phase for phase in log.under("seconds") if phase not in (*PHASES, "step")]
    return {phase: np.nan_to_num(log.get(f"seconds/{phase}")) for phase in (*named, *others)}


def _draw_compute(study: Study, rows: list[dict[str, Any]]) -> Drawing:
    from populora.report.drawing import panels

    colours = {arm.label: arm.colour for arm in study.arms}
    drawing, axes = panels(1, 3, width=3.0, height=0.5 + 0.35 * len(rows))
    for axis, key, title in zip(
        axes[0],
        ("seconds_per_step", "seconds_per_adapter_step", "ratio"),
        ("seconds a step", "seconds an adapter-step", "ratio to the baseline"),
        strict=True,
    ):
        values = [row[key] or 0.0 for row in rows]
        bars = axis.barh([row["arm"] for row in rows], values, color=[colours[row["arm"]] for row in rows], height=0.6)
        axis.bar_label(bars, ["–" if row[key] is None else f"{row[key]:.2f}" for row in rows], padding=2, fontsize=7)
        axis.set_title(title)
        axis.set(xlim=(0, 1.2 * max(values) or 1), ylim=(len(rows) - 0.4, -0.6))
        axis.grid(visible=False, axis="y")
        if axis is not axes[0, 0]:
            axis.set_yticklabels([])
        if not any(values):
            axis.set_axis_off()
            axis.text(0, 0.5, "no baseline was timed" if key == "ratio" else "not known", va="center", transform=axis.transAxes)
    return drawing


def _draw_timings(arms: list[Arm]) -> Drawing:
    from populora.report.drawing import many, panels

    drawing, axes = panels(1, len(arms), width=max(3.0, 8.4 / len(arms)), height=2.2)
    names = list(dict.fromkeys(phase for arm in arms for phase in _phases(arm)))
    colours = many(names)
    for axis, arm in zip(axes[0], arms, strict=True):
        phases = _phases(arm)
        own = [colours[phase] for phase in phases]
        axis.stackplot(arm.runs[0].timings.steps, *phases.values(), colors=own, labels=list(phases), linewidth=0)
        axis.set(title=arm.label, xlabel="step", ylabel="seconds")
    handles, labels = axes[0, -1].get_legend_handles_labels()
    drawing.legend(handles[::-1], labels[::-1], loc="outside right center")  # as they are stacked
    return drawing
