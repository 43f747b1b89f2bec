"""The figures that show logged metrics over steps, a panel each (`panel_specs`)."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from populora.report.arms import Arm
from populora.report.drawing import PALE, Curve, Drawing, curve_rows, curves_of, draw_curves, legend, members_of, panels
from populora.report.figure import Figure, MissingFigure, Study, describe_runs
from populora.report.figures.panel_specs import Panel, PanelFigure, panel_specs
from populora.report.many_members import BANDS, too_many


def panel_figures(study: Study) -> dict[str, Figure | MissingFigure]:
    """Return every figure of `panel_specs` by its name."""
    return {spec.name: _figure(study, spec) for spec in panel_specs(study.domains)}


def _figure(study: Study, spec: PanelFigure) -> Figure | MissingFigure:
    arms, identity = study.arms, (spec.name, spec.title, spec.paper)
    if spec.name == "population_size" and len({arm.adapters for arm in study.populations}) < 2:
        return MissingFigure(*identity, "it compares populations of different sizes: give a run of each")
    curves = [curves_of(arms, panel.metric, panel.task, panel.domain) for panel in spec.panels]
    if not any(curves):
        return MissingFigure(*identity, _lacking(spec), spec.domain)
    names = dict.fromkeys(curve.metric for panel_curves in curves for curve in panel_curves)
    grouped = any(too_many(members_of(arm.runs[0].metrics)) for arm in study.populations)
    return Figure(
        *identity,
        definition=f"{spec.meaning} {_how_drawn(spec, arms)}{f' {BANDS}' if grouped else ''}",
        source=f"metrics.jsonl: {', '.join(names)}, and of each member",
        runs=f"{describe_runs(arms)}; trailing means over {study.smooth} steps",
        rows=[row for panel_curves in curves for row in curve_rows(panel_curves)],
        drawing=lambda: _draw(spec, arms, curves, study.smooth),
        domain=spec.domain,
    )


def _how_drawn(spec: PanelFigure, arms: Sequence[Arm]) -> str:
    """Say what lines and bands are, as far as these arms have several members or runs."""
    members, runs = any(arm.adapters > 1 for arm in arms), any(len(arm.runs) > 1 for arm in arms)
    bold = ["all members together"] * members + ["mean over the runs of an arm, up to the step where the first of them ends"] * runs
    thin = (
        "Thin: each member, teachers dashed." if spec.members else f"Band: from the lowest to the highest {'member' if members else 'run'}."
    )
    return " ".join([f"Bold: {', '.join(bold)}. {thin}"] * bool(bold) + ["Lines are trailing means; the CSV has the logged values."])


def _lacking(spec: PanelFigure) -> str:
    no_run = f"no run has {', '.join(sorted({panel.metric for panel in spec.panels}))}"
    return f"{no_run} of {spec.domain}: none of its problems was valid" if spec.domain else no_run


def _draw(spec: PanelFigure, arms: Sequence[Arm], curves: Sequence[Sequence[Curve]], smooth: int) -> Drawing:
    rows = -(-len(spec.panels) // spec.columns)
    drawing, axes = panels(rows, spec.columns, width=10 / spec.columns, sharex=True)
    for axis in axes.flat[len(spec.panels) :]:
        axis.set_axis_off()
    for axis, panel, panel_curves in zip(axes.flat, spec.panels, curves, strict=False):
        draw_curves(axis, arms, panel_curves, smooth, spec.members)
        axis.set_title(panel.title)
        _scale(axis, panel)
        if not any(np.isfinite(curve.values).any() for curve in panel_curves):
            axis.text(0.5, 0.5, "not measured", ha="center", color=PALE, transform=axis.transAxes)
    for axis in axes[-1]:
        axis.set_xlabel("step")
    legend(drawing, arms)
    return drawing


def _scale(axis: Axes, panel: Panel) -> None:
    if panel.share:
        axis.set_ylim(-0.02, 1.02)
    elif panel.zero:
        top = max(0.05, axis.get_ylim()[1])
        axis.set_ylim(-0.02 * top, top)
    if max(map(abs, axis.get_ylim())) < 1e-3:
        axis.yaxis.set_major_formatter("{x:g}")  # a power of ten would overlap the title
