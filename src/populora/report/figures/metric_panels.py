"""The figures that show logged metrics over steps: dynamics, complexity, diagnostics, length, coverage and more."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from populora.report.arms import Arm
from populora.report.drawing import PALE, Curve, Drawing, curve_rows, curves_of, draw_curves, legend, line_styles, panels
from populora.report.figure import Figure, MissingFigure, Study, describe_runs

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
    """One metric of a figure."""

    title: str
    metric: str
    task: str = ""
    """Restrict the metric to a task type."""
    share: bool = False
    """Draw the axis from 0 to 1."""
    zero: bool = False
    """Draw the axis from 0."""


@dataclass(frozen=True)
class PanelFigure:
    """A figure with a panel for each metric, in rows of ``columns`` panels."""

    name: str
    title: str
    meaning: str
    panels: tuple[Panel, ...]
    columns: int
    paper: str = ""
    members: bool = False
    """Draw each member instead of the band."""


TASKS = {"code_i": "infer input", "code_o": "infer output", "code_f": "infer function"}
_SOLVE = "Solve rate: share of correct answers to the step's own problems, void ones and those that only fill a batch left out."
_VALID = "Validity: share of proposals that the sandbox accepts."
PANEL_FIGURES = (
    PanelFigure(
        "dynamics", "Training dynamics",
        f"{_SOLVE} Format rate: share of answers in the format asked for. Difficulty: 1 - mean rho over valid problems. {_VALID} The "
        "single agent's difficulty is its own failure rate; a teacher's is its student's.",
        (
            Panel("solver: solve rate", "student/solve_rate", share=True), Panel("solver: format rate", "student/format_rate", share=True),
            Panel("teacher: difficulty", "teacher/difficulty", share=True), Panel("teacher: validity", "teacher/validity", share=True),
        ),
        4, "Figure 3 (training dynamics)",
    ),
    PanelFigure(
        "dynamics_per_type", "Training dynamics by type", f"{_SOLVE} {_VALID}",
        tuple(
            Panel(f"{task}: {title}", metric, task, share=True)
            for task in TASKS
            for title, metric in (("solve rate", "student/solve_rate"), ("validity", "teacher/validity"))
        ),
        2, "Figure: per-type breakdown",
    ),
    PanelFigure(
        "solve_rate_by_type", "Solve rate by problem type", _SOLVE,
        tuple(Panel(f"{task} ({title})", "student/solve_rate", task, share=True) for task, title in TASKS.items()),
        3, "Figure: solve rate by problem type",
    ),
    PanelFigure(
        "complexity", "Program complexity",
        "Means over the valid programs that were written in the step (code_f is given its program). AST depth: levels under the module. "
        "Cyclomatic: 1 + if, elif, for, while, except, and, or, assert and comprehensions' for. Lines with code. Variables: names bound.",
        (
            Panel("AST depth", "teacher/ast_depth"), Panel("cyclomatic complexity", "teacher/cyclomatic"),
            Panel("lines of code", "teacher/loc"), Panel("variables", "teacher/variables"),
        ),
        4, "Figure 4 (program complexity)",
    ),
    PanelFigure(
        "diagnostics", "Training diagnostics",
        "Norm of a member's gradient before clipping; its policy-gradient loss; mean entropy (nats a token) of the distributions that "
        "proposals and answers were sampled from. There is no KL penalty, so no KL to a reference. Where a batch is used once, before any "
        "update, the normalised advantages sum to nearly nothing, and so does the loss: it is no measure of progress.",
        (
            Panel("gradient norm", "learner/grad_norm"), Panel("policy-gradient loss", "learner/loss"),
            Panel("entropy of proposals, nats", "teacher/entropy"),
            Panel("entropy of answers, nats", "student/entropy"),
        ),
        4, "Figure: training diagnostics",
    ),
    PanelFigure(
        "response_length", "Response length", "Mean tokens of a response, the stop token included.",
        (
            Panel("proposals, tokens", "teacher/response_length"), Panel("answers, tokens", "student/response_length"),
            Panel("answers cut at the limit", "student/clipped", zero=True),
        ),
        3, "Figure: response length",
    ),
    PanelFigure(
        "population_size", "Population size",
        f"{_SOLVE} Difficulty: 1 - mean rho over valid problems. Complexity as in its own figure.",
        (
            Panel("solver: solve rate", "student/solve_rate", share=True), Panel("teacher: difficulty", "teacher/difficulty", share=True),
            Panel("cyclomatic complexity", "teacher/cyclomatic"), Panel("lines of code", "teacher/loc"),
        ),
        4, "Figure 7 (population-size ablation)",
    ),
    PanelFigure(
        "reward_hacking", "Signs of reward hacking",
        "What pays without being harder or better. A teacher is paid for failures: for answers out of format, for repeated programs, for "
        "problems that are never or always solved (no pay, but no signal either). Void: the gold value did not reproduce. "
        "Solved outside the fence: correct answers that count only under lenient extraction.",
        (
            Panel("answers out of format, by author", "teacher/rho_format_fail", zero=True),
            Panel("programs that repeat one", "teacher/duplicates", zero=True),
            Panel("problems never solved", "teacher/rho_zero", zero=True), Panel("problems always solved", "teacher/rho_one", zero=True),
            Panel("void attempts", "student/void", zero=True), Panel("solved outside the fence", "student/lenient_solved", zero=True),
            Panel("no variance: groups of proposals", "teacher/zero_variance", zero=True),
            Panel("no variance: groups of answers", "student/zero_variance", zero=True),
        ),
        4,
    ),
    PanelFigure(
        "sampler_gap", "Sampler against learner",
        "Per member, over the tokens of its batch: mean KL and mean and largest difference of log-probabilities between what sampled "
        "and what learns, and the effective sample size under truncated importance weights (1: no gap).",
        (
            Panel("KL, nats a token", "learner/kl"), Panel("mean difference, nats", "learner/mean_difference"),
            Panel("largest difference, nats", "learner/max_difference"), Panel("effective sample size", "learner/ess", share=True),
        ),
        4, members=True,
    ),
)  # fmt: skip
COVERAGE_FIGURE = ("coverage", "Problem-space coverage", "Figure: problem-space coverage")
COVERAGE, PROXY, DISTINCT, PROGRAMS = "archive/coverage", "archive/proxy", "archive/distinct_descriptors", "archive/total_problems"


def panel_figures(study: Study) -> dict[str, Figure | MissingFigure]:
    """Return every figure of `PANEL_FIGURES` by its name."""
    return {spec.name: _figure(study, spec) for spec in PANEL_FIGURES}


def _figure(study: Study, spec: PanelFigure) -> Figure | MissingFigure:
    arms, identity = study.arms, (spec.name, spec.title, spec.paper)
    if spec.name == "population_size" and len({arm.adapters for arm in study.populations}) < 2:
        return MissingFigure(*identity, "it compares populations of different sizes: give a run of each")
    curves = [curves_of(arms, panel.metric, panel.task) for panel in spec.panels]
    if not any(curves):
        metrics = sorted({panel.metric for panel in spec.panels})
        return MissingFigure(*identity, f"no run has {', '.join(metrics)}")
    names = dict.fromkeys(panel.metric + (f"/{panel.task}" if panel.task else "") for panel in spec.panels)
    return Figure(
        *identity,
        definition=f"{spec.meaning} {MEMBERS_DRAWN if spec.members else BANDS_DRAWN}",
        source=f"metrics.jsonl: {', '.join(names)}, and of each member",
        runs=f"{describe_runs(arms)}; trailing means over {study.smooth} steps",
        rows=[row for panel_curves in curves for row in curve_rows(panel_curves)],
        draw=lambda: _draw(spec, arms, curves, study.smooth),
    )


def _draw(spec: PanelFigure, arms: Sequence[Arm], curves: Sequence[Sequence[Curve]], smooth: int) -> Drawing:
    rows = -(-len(spec.panels) // spec.columns)
    drawing, axes = panels(rows, spec.columns, width=10 / spec.columns, sharex=True)
    for axis, panel, panel_curves in zip(axes.flat, spec.panels, curves, strict=True):
        draw_curves(axis, arms, panel_curves, smooth, spec.members)
        axis.set_title(panel.title)
        if panel.share:
            axis.set_ylim(-0.02, 1.02)
        elif panel.zero:
            top = max(0.05, axis.get_ylim()[1])
            axis.set_ylim(-0.02 * top, top)
        if max(map(abs, axis.get_ylim())) < 1e-3:
            axis.yaxis.set_major_formatter("{x:g}")  # a power of ten would overlap the title
        if not any(np.isfinite(curve.values).any() for curve in panel_curves):
            axis.text(0.5, 0.5, "not measured", ha="center", color=PALE, transform=axis.transAxes)
    for axis in axes[-1]:
        axis.set_xlabel("step")
    legend(drawing, arms)
    return drawing


def coverage_figure(study: Study) -> Figure | MissingFigure:
    """Draw coverage over steps and over programs, the proxy, and the number of distinct descriptors."""
    curves = {metric: curves_of(study.arms, metric) for metric in (COVERAGE, PROXY, DISTINCT, PROGRAMS)}
    tessellations = {run.facts.get("tessellation_sha256") for arm in study.arms for run in arm.runs} - {None}
    if not curves[COVERAGE]:
        return MissingFigure(*COVERAGE_FIGURE, f"no run has {COVERAGE}")
    return Figure(
        *COVERAGE_FIGURE,
        definition=(
            "A CVT archive of 4,096 cells over AST depth, cyclomatic complexity, lines and variables. Every valid program of a proposer, "
            "void ones left out, falls into the nearest cell. Coverage: cells with a program. The paper's proxy for its baseline is all "
            "problems / 4,096; it counts repeats and must not be compared with coverage. The second panel compares at equal numbers of "
            "programs. The last panel counts distinct descriptors, because most cells hold no whole numbers."
            + (" THESE RUNS HAVE DIFFERENT TESSELLATIONS: their coverage must not be compared." if len(tessellations) > 1 else "")
        ),
        source=f"metrics.jsonl: {', '.join(curves)}",
        runs=describe_runs(study.arms),
        rows=[row for metric_curves in curves.values() for row in curve_rows(metric_curves)],
        draw=lambda: _draw_coverage(study.arms, curves),
    )


def _draw_coverage(arms: Sequence[Arm], curves: Mapping[str, Sequence[Curve]]) -> Drawing:
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
