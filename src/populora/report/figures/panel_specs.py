"""The panels of the figures that show logged metrics over steps: dynamics, complexity, diagnostics, length and more.

Types and complexity metrics are those of the domains of the runs. With several domains, each has a section of its own with the figures of
`domain_figures`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from populora.core.types import Kind, task_types
from populora.domains.registry import load_domain


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
    domain: str = ""
    """Restrict the metric to a domain."""


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
    domain: str = ""
    """The section of the page, with several domains."""


SOUGHT = {Kind.INPUT: "infer input", Kind.OUTPUT: "infer output", Kind.PROGRAM: "infer program"}
_SOLVE = "Solve rate: share of correct answers to the step's own problems, void ones and those that only fill a batch left out."
_VALID = "Validity: share of proposals that the sandbox accepts."
_WRITTEN = "Means over the valid programs that were written in the step (kind f is given its program)."
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
        "diagnostics", "Training diagnostics",
        "Norm of a member's gradient before clipping; its policy-gradient loss; mean entropy (nats a token) of the distributions that "
        "proposals and answers were sampled from. There is no KL to the base: where learner.base_kl penalises it, it is in the log. The "
        'loss of a batch that is used once is no measure of progress: it is near zero with learner.centring = "batch", and else it follows '
        "the difference in length of good and bad answers.",
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
"""Figures whose panels are the same in any domain."""
OF_EACH_DOMAIN = ("dynamics", "response_length", "reward_hacking")
"""Those of them that each of several domains has as well."""


def panel_specs(domains: Sequence[str]) -> list[PanelFigure]:
    """Return all figures of panels for runs of these domains."""
    specs = [*PANEL_FIGURES, *type_figures(domains), size_figure(domains)]
    return specs + (domain_figures(domains) if len(domains) > 1 else [complexity_figure(domain) for domain in domains])


def type_figures(domains: Sequence[str]) -> list[PanelFigure]:
    """Return the figures with panels for each task type."""
    types, rates = task_types(domains), (("solve rate", "student/solve_rate"), ("validity", "teacher/validity"))
    shared_panels = tuple(Panel(f"{task}: {title}", metric, task, share=True) for task in types for title, metric in rates)
    solved = tuple(Panel(f"{task} ({SOUGHT[task.kind]})", "student/solve_rate", task, share=True) for task in types)
    return [
        PanelFigure("dynamics_per_type", "Training dynamics by type", f"{_SOLVE} {_VALID}", shared_panels, 2, "Figure: per-type breakdown"),
        PanelFigure("solve_rate_by_type", "Solve rate by problem type", _SOLVE, solved, 3, "Figure: solve rate by problem type"),
    ]


def complexity_figure(domain: str) -> PanelFigure:
    """Return the figure of a domain's complexity metrics."""
    metrics = load_domain(domain).metrics
    panels = tuple(Panel(metric.label, f"teacher/{metric.name}", domain=domain) for metric in metrics)
    meaning = " ".join([_WRITTEN, *(metric.meaning for metric in metrics if metric.meaning)])
    return PanelFigure("complexity", "Program complexity", meaning, panels, 4, "Figure 4 (program complexity)")


def size_figure(domains: Sequence[str]) -> PanelFigure:
    """Return the figure that compares populations of several sizes, with the complexity metrics that each domain shows."""
    first = (
        Panel("solver: solve rate", "student/solve_rate", share=True), Panel("teacher: difficulty", "teacher/difficulty", share=True),
    )  # fmt: skip
    complexity = tuple(
        Panel(metric.label + (f" ({domain.name})" if len(domains) > 1 else ""), f"teacher/{metric.name}", domain=domain.name)
        for domain in map(load_domain, domains)
        for metric in domain.metrics
        if metric.name in domain.shown
    )
    meaning = f"{_SOLVE} Difficulty: 1 - mean rho over valid problems. Complexity as in its own figure."
    return PanelFigure("population_size", "Population size", meaning, first + complexity, 4, "Figure 7 (population-size ablation)")


def domain_figures(domains: Sequence[str]) -> list[PanelFigure]:
    """Return the figures of each of several domains, and that of the sources of the ratings."""
    shared = [spec for spec in PANEL_FIGURES if spec.name in OF_EACH_DOMAIN]
    return [_within(spec, domain) for domain in domains for spec in (*shared, complexity_figure(domain))] + [sources_figure(domains)]


def _within(spec: PanelFigure, domain: str) -> PanelFigure:
    panels = tuple(replace(panel, domain=domain) for panel in spec.panels)
    return replace(spec, name=f"{spec.name}_{domain}", title=f"{spec.title}: {domain}", panels=panels, domain=domain)


def sources_figure(domains: Sequence[str]) -> PanelFigure:
    """Return the figure that tells from which domain the ratings come."""
    panels = tuple(
        Panel(f"{domain}: {title}", metric, domain=domain, share=share, zero=not share)
        for title, metric, share in (("mean rho", "matchup/mean_rho", True), ("problems a matchup", "matchup/problems", False))
        for domain in domains
    )
    meaning = (
        "A matchup is decided by the mean rho over the teacher's rated problems of all domains. Here it is apart by domain: means over the "
        "step's matchups of the domain's mean rho, and of the number of its rated problems, which is its weight. A domain with 0 problems "
        "decides nothing."
    )
    return PanelFigure("rating_sources", "Where the ratings come from", meaning, panels, len(domains))
