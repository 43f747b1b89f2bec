"""Where the seconds of a step go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from populora.report.arms import Arm
from populora.report.figure import Absent, Figure, Study, shown
from populora.report.figures.compute import UNTIMED
from populora.report.loading import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

PHASES = ("matchmaking", "propose", "solve", "wait", "update", "publish", "store", "evaluate", "evolve", "canary", "write")


def timings_figure(study: Study) -> Figure | Absent:
    """Seconds by phase over the steps."""
    name, title = "phase_timings", "Where a step's seconds go"
    arms = [arm for arm in study.arms if len(arm.runs[0].timings.steps)]
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


def _phases(arm: Arm) -> dict[str, Array]:
    log = arm.runs[0].timings
    named = [*(phase for phase in PHASES if f"seconds/{phase}" in log.columns)]
    others = [phase for phase in log.under("seconds") if phase not in (*PHASES, "step")]
    return {phase: np.nan_to_num(log.get(f"seconds/{phase}")) for phase in (*named, *others)}


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
