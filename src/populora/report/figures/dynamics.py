"""The figures that are panels of logged metrics over steps: a table of them, and one way to make each."""

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

TASKS = {"code_i": "infer input", "code_o": "infer output", "code_f": "infer function"}
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


_SOLVE = "Solve rate: share of correct answers to the step's own problems, void ones and those that only fill a batch left out."
_VALID = "Validity: share of proposals that the sandbox accepts."
FIGURES = (
    Panels(
        "dynamics", "Training dynamics",
        f"{_SOLVE} Format rate: share of answers in the format asked for. Difficulty: 1 - mean rho over valid problems. {_VALID} The "
        "single agent's difficulty is its own failure rate; a teacher's is its student's.",
        (
            Panel("solver: solve rate", "student/solve_rate", share=True), Panel("solver: format rate", "student/format_rate", share=True),
            Panel("teacher: difficulty", "teacher/difficulty", share=True), Panel("teacher: validity", "teacher/validity", share=True),
        ),
        4, "Figure 3 (training dynamics)",
    ),
    Panels(
        "dynamics_per_type", "Training dynamics by type", f"{_SOLVE} {_VALID}",
        tuple(
            Panel(f"{task}: {title}", metric, task, share=True)
            for task in TASKS
            for title, metric in (("solve rate", "student/solve_rate"), ("validity", "teacher/validity"))
        ),
        2, "Figure: per-type breakdown",
    ),
    Panels(
        "solve_rate_by_type", "Solve rate by problem type", _SOLVE,
        tuple(Panel(f"{task} ({title})", "student/solve_rate", task, share=True) for task, title in TASKS.items()),
        3, "Figure: solve rate by problem type",
    ),
    Panels(
        "complexity", "Program complexity",
        "Means over the valid programs that were written in the step (code_f is given its program). AST depth: levels under the module. "
        "Cyclomatic: 1 + if, elif, for, while, except, and, or, assert and comprehensions' for. Lines with code. Variables: names bound.",
        (
            Panel("AST depth", "teacher/ast_depth"), Panel("cyclomatic complexity", "teacher/cyclomatic"),
            Panel("lines of code", "teacher/loc"), Panel("variables", "teacher/variables"),
        ),
        4, "Figure 4 (program complexity)",
    ),
    Panels(
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
    Panels(
        "response_length", "Response length", "Mean tokens of a response, the stop token included.",
        (
            Panel("proposals, tokens", "teacher/response_length"), Panel("answers, tokens", "student/response_length"),
            Panel("answers cut at the limit", "student/clipped", zero=True),
        ),
        3, "Figure: response length",
    ),
    Panels(
        "population_size", "Population size",
        f"{_SOLVE} Difficulty: 1 - mean rho over valid problems. Complexity as in its own figure.",
        (
            Panel("solver: solve rate", "student/solve_rate", share=True), Panel("teacher: difficulty", "teacher/difficulty", share=True),
            Panel("cyclomatic complexity", "teacher/cyclomatic"), Panel("lines of code", "teacher/loc"),
        ),
        4, "Figure 7 (population-size ablation)",
    ),
    Panels(
        "reward_hacking", "Signs of reward hacking",
        "What pays without being harder or better. A teacher is paid for failures: for answers out of format, for repeated programs, for "
        "problems nobody or everybody solves (no pay, but no signal either). Void: the gold value did not reproduce. "
        "Solved outside the fence: correct answers that count only under lenient extraction.",
        (
            Panel("answers out of format, by author", "teacher/rho_format_fail", zero=True),
            Panel("programs that repeat one", "teacher/duplicates", zero=True),
            Panel("problems nobody solves", "teacher/rho_zero", zero=True), Panel("problems always solved", "teacher/rho_one", zero=True),
            Panel("void attempts", "student/void", zero=True), Panel("solved outside the fence", "student/lenient_solved", zero=True),
            Panel("no variance: groups of proposals", "teacher/zero_variance", zero=True),
            Panel("no variance: groups of answers", "student/zero_variance", zero=True),
        ),
        4,
    ),
    Panels(
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
