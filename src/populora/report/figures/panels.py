"""Figures that are panels of logged metrics over steps: what such a figure is, and the one way to make each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from populora.report.arms import Arm
from populora.report.curves import Curve, curve_rows, curves_of
from populora.report.figure import Absent, Figure, Study, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

BANDS_DRAWN = (
    "Bold: mean over an arm's runs of the run's value over all its samples (of learner/… over its members), up to the step where the "
    "first of the runs ends. Band: from the lowest to the highest member. Both are trailing means; the CSV has the logged values."
)
MEMBERS_DRAWN = (
    "Bold: mean over members and runs, up to the step where the first of the runs ends; thin: each member, teachers dashed. Trailing "
    "means; the CSV has the logged values."
)


@dataclass(frozen=True)
class Panel:
    """One metric; ``task`` restricts it to a type."""

    title: str
    metric: str
    task: str = ""
    share: bool = False
    """Between 0 and 1, and drawn so."""
    zero: bool = False
    """Drawn from 0 on."""


@dataclass(frozen=True)
class Panels:
    """A figure of such panels, ``columns`` beside each other."""

    name: str
    title: str
    meaning: str
    panels: tuple[Panel, ...]
    columns: int
    paper: str = ""
    members: bool = False
    """Draw each member instead of the band."""


def panels_figure(study: Study, spec: Panels) -> Figure | Absent:
    """A figure of `FIGURES` from the arms of a study."""
    arms = study.arms
    if spec.name == "population_size" and len({arm.adapters for arm in study.populations}) < 2:
        return Absent(spec.name, spec.title, "it compares populations of different sizes: give a run of each", spec.paper)
    found = [curves_of(arms, panel.metric, panel.task) for panel in spec.panels]
    if not any(found):
        return Absent(spec.name, spec.title, f"no run has {', '.join(sorted({panel.metric for panel in spec.panels}))}", spec.paper)
    names = dict.fromkeys(panel.metric + (f"/{panel.task}" if panel.task else "") for panel in spec.panels)
    return Figure(
        name=spec.name,
        title=spec.title,
        definition=f"{spec.meaning} {MEMBERS_DRAWN if spec.members else BANDS_DRAWN}",
        source=f"metrics.jsonl: {', '.join(names)}, and of each member",
        shown=f"{shown(arms)}; trailing means over {study.smooth} steps",
        rows=[row for curves in found for row in curve_rows(curves)],
        draw=lambda: _draw(spec, arms, found, study.smooth),
        paper=spec.paper,
    )


def _draw(spec: Panels, arms: Sequence[Arm], found: Sequence[Sequence[Curve]], smooth: int) -> Drawing:
    from populora.report.drawing import PALE, draw_curves, legend, panels

    rows = -(-len(spec.panels) // spec.columns)
    drawing, axes = panels(rows, spec.columns, width=10 / spec.columns, sharex=True)
    for axis, panel, curves in zip(axes.flat, spec.panels, found, strict=True):
        draw_curves(axis, arms, curves, smooth, spec.members)
        axis.set_title(panel.title)
        if panel.share:
            axis.set_ylim(-0.02, 1.02)
        elif panel.zero:
            top = max(0.05, axis.get_ylim()[1])
            axis.set_ylim(-0.02 * top, top)
        if max(map(abs, axis.get_ylim())) < 1e-3:
            axis.yaxis.set_major_formatter("{x:g}")  # not a power of ten in the title's place
        if not any(np.isfinite(curve.values).any() for curve in curves):
            axis.text(0.5, 0.5, "not measured", ha="center", color=PALE, transform=axis.transAxes)
    for axis in axes[-1]:
        axis.set_xlabel("step")
    legend(drawing, arms)
    return drawing
