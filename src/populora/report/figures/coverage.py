"""Problem-space coverage, for each domain: its archive's cells, the paper's proxy, and the distinct descriptors."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from populora.domains.registry import load_domain
from populora.report.arms import Arm
from populora.report.drawing import Curve, Drawing, curve_rows, curves_of, draw_curves, legend, line_styles, panels
from populora.report.figure import Figure, MissingFigure, Study, describe_runs
from populora.report.run_data import RunData

COVERAGE_FIGURE = ("coverage", "Problem-space coverage", "Figure: problem-space coverage")
COVERAGE, PROXY, DISTINCT, PROGRAMS = "archive/coverage", "archive/proxy", "archive/distinct_descriptors", "archive/total_problems"


def coverage_figure(study: Study, domain: str) -> Figure | MissingFigure:
    """Draw coverage over steps and over programs, the proxy, and the number of distinct descriptors."""
    identity, section = study.within(COVERAGE_FIGURE, domain)
    curves = {metric: curves_of(study.arms, metric, domain=domain) for metric in (COVERAGE, PROXY, DISTINCT, PROGRAMS)}
    tessellations = {_tessellation(run, domain) for arm in study.arms for run in arm.runs} - {""}
    if not curves[COVERAGE]:
        return MissingFigure(*identity, f"no run has {COVERAGE}" + (f" of {section}" if section else ""), section)
    *first, last = (metric.label for metric in load_domain(domain).metrics)
    return Figure(
        *identity,
        definition=(
            f"A CVT archive of 4,096 cells over {', '.join(first)} and {last}. Every valid program of a proposer, "
            "void ones left out, falls into the nearest cell. Coverage: cells with a program. The paper's proxy for its baseline is all "
            "problems / 4,096; it counts repeats and must not be compared with coverage. The second panel compares at equal numbers of "
            "programs. The last panel counts distinct descriptors, because most cells hold no whole numbers."
            + (" THESE RUNS HAVE DIFFERENT TESSELLATIONS: their coverage must not be compared." if len(tessellations) > 1 else "")
        ),
        source=f"metrics.jsonl: {', '.join(dict.fromkeys(curve.metric for of_metric in curves.values() for curve in of_metric))}",
        runs=describe_runs(study.arms),
        rows=[row for metric_curves in curves.values() for row in curve_rows(metric_curves)],
        drawing=lambda: _draw(study.arms, curves),
        domain=section,
    )


def _tessellation(run: RunData, domain: str) -> str:
    """Return the digest of the cells of a run's archive of the domain; empty if it has none."""
    digests = dict(zip(run.config.domains, run.facts.get("tessellation_sha256", "").split(", "), strict=False))
    return digests.get(domain, "")


def _draw(arms: Sequence[Arm], curves: Mapping[str, Sequence[Curve]]) -> Drawing:
    drawing, axes = panels(1, 4)
    percent = {metric: [replace(curve, values=100 * curve.values) for curve in curves[metric]] for metric in (COVERAGE, PROXY)}
    colours, lines = {arm.label: arm.colour for arm in arms}, line_styles(arms)
    programs = {curve.run: curve.values for curve in curves[PROGRAMS]}
    draw_curves(axes[0, 0], arms, percent[COVERAGE], 1)
    for curve in percent[COVERAGE]:
        if curve.run in programs:
            axes[0, 1].plot(programs[curve.run], curve.values, lines[curve.arm], color=colours[curve.arm], linewidth=1)
    draw_curves(axes[0, 2], arms, percent[PROXY], 1)
    draw_curves(axes[0, 3], arms, curves[DISTINCT], 1)
    titles = ("coverage, % of cells", "coverage, % of cells", "the paper's proxy, %", "distinct descriptors")
    for axis, title, label in zip(axes[0], titles, ("step", "programs", "step", "step"), strict=True):
        axis.set_title(title)
        axis.set_xlabel(label)
        axis.set_ylim(bottom=0)
    legend(drawing, arms)
    return drawing
