"""Problem-space coverage: the same quantity for every arm, the paper's proxy beside it, and coverage at equal numbers of programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from populora.report.arms import Arm
from populora.report.curves import Curve, curve_rows, curves_of
from populora.report.figure import Absent, Figure, Study, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

NAME, TITLE, PAPER = "coverage", "Problem-space coverage", "Figure: problem-space coverage"
COVERAGE, PROXY, DISTINCT, PROGRAMS = "archive/coverage", "archive/proxy", "archive/distinct_descriptors", "archive/total_problems"


def coverage_figure(study: Study) -> Figure | Absent:
    """Coverage over steps and over programs, the proxy, and how many different descriptors there were."""
    arms = study.arms
    found = {metric: curves_of(arms, metric) for metric in (COVERAGE, PROXY, DISTINCT, PROGRAMS)}
    kept = {run.name: run.tessellation for arm in arms for run in arm.runs}
    alike = len({found for found in kept.values() if found}) < 2
    if not found[COVERAGE]:
        return Absent(NAME, TITLE, f"no run has {COVERAGE}", PAPER)
    return Figure(
        name=NAME,
        title=TITLE,
        definition=(
            "A CVT archive of 4,096 cells over AST depth, cyclomatic complexity, lines and variables, with ranges and centroids that are "
            "saved with the run; every valid program written by a proposer, void ones left out, falls into the nearest cell. Coverage: "
            "cells with a program. The paper compares the population's coverage with the baseline's proxy, all problems / 4,096, which "
            "counts repeats and may exceed 100 %: here both arms have both, and the two must not be compared. An arm with more proposers "
            "writes more programs a step: the second panel compares at equal numbers of programs. The last counts different descriptors, "
            "since most cells hold no whole "
            "numbers." + ("" if alike else " THESE RUNS HAVE DIFFERENT TESSELLATIONS: their coverage must not be compared.")
        ),
        source=f"metrics.jsonl: {', '.join(found)}",
        shown=shown(arms),
        rows=[row for curves in found.values() for row in curve_rows(curves)],
        draw=lambda: _draw(arms, found),
        paper=PAPER,
    )


def _draw(arms: Sequence[Arm], found: dict[str, list[Curve]]) -> Drawing:
    from populora.report.drawing import draw_curves, legend, panels, styles

    drawing, axes = panels(1, 4)
    percent = {metric: [_percent(curve) for curve in found[metric]] for metric in (COVERAGE, PROXY)}
    lines = styles(arms)
    programs = {curve.run: curve.values for curve in found[PROGRAMS]}
    draw_curves(axes[0, 0], arms, percent[COVERAGE], 1)
    for curve in percent[COVERAGE]:
        if curve.run in programs:
            axes[0, 1].plot(programs[curve.run], curve.values, lines[curve.arm], color=_colour(arms, curve), linewidth=1)
    draw_curves(axes[0, 2], arms, percent[PROXY], 1)
    draw_curves(axes[0, 3], arms, found[DISTINCT], 1)
    titles = ("coverage, % of cells", "coverage, % of cells", "the paper's proxy, %", "distinct descriptors")
    for axis, title, below in zip(axes[0], titles, ("step", "programs", "step", "step"), strict=True):
        axis.set_title(title)
        axis.set_xlabel(below)
        axis.set_ylim(bottom=0)
    legend(drawing, arms)
    return drawing


def _percent(curve: Curve) -> Curve:
    return Curve(curve.arm, curve.run, curve.member, curve.metric, curve.steps, 100 * np.asarray(curve.values))


def _colour(arms: Sequence[Arm], curve: Curve) -> str:
    return next(arm.colour for arm in arms if arm.label == curve.arm)
