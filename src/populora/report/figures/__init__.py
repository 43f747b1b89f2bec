"""The figures of a report."""

from collections.abc import Mapping

from populora.report.figure import Figure, MissingFigure, Study
from populora.report.figures.arm_comparison import comparison_figure
from populora.report.figures.compute import compute_figure, timings_figure
from populora.report.figures.coverage import coverage_figure
from populora.report.figures.downstream import downstream_figures
from populora.report.figures.equal_compute import equal_compute_figure
from populora.report.figures.failure_reasons import reasons_figure
from populora.report.figures.lineage_tree import lineage_figure
from populora.report.figures.matchups import cross_evaluation_figure, trueskill_figure
from populora.report.figures.metric_panels import panel_figures
from populora.report.figures.panel_specs import OF_EACH_DOMAIN
from populora.report.figures.retention_grids import retention_figures
from populora.report.figures.sampled_programs import samples_figure


def make_figures(study: Study) -> list[Figure | MissingFigure]:
    """Make every figure of a study in the order of the page: those of the paper, the others, and those of each of several domains.

    All but those that compare arms show the runs that have a step, if there are any. These name the others.
    """
    begun = study.begun if study.begun.arms else study
    panels, several = panel_figures(begun), len(begun.domains) > 1
    return [
        panels["dynamics"],
        panels["dynamics_per_type"],
        panels["solve_rate_by_type"],
        *([] if several else [panels["complexity"], coverage_figure(begun, begun.domains[0])]),
        trueskill_figure(begun),
        cross_evaluation_figure(begun),
        panels["population_size"],
        *retention_figures(begun),
        *downstream_figures(begun),
        panels["diagnostics"],
        panels["response_length"],
        compute_figure(begun),
        *([] if several else [samples_figure(begun, begun.domains[0])]),
        lineage_figure(begun),
        panels["reward_hacking"],
        reasons_figure(begun),
        panels["sampler_gap"],
        timings_figure(begun),
        comparison_figure(study),
        equal_compute_figure(study),
        *([panels["rating_sources"], *_of_each_domain(begun, panels)] if several else []),
    ]


def _of_each_domain(study: Study, panels: Mapping[str, Figure | MissingFigure]) -> list[Figure | MissingFigure]:
    made: list[Figure | MissingFigure] = []
    for domain in study.domains:
        made += [panels[f"{name}_{domain}"] for name in ("complexity", *OF_EACH_DOMAIN)]
        made += [coverage_figure(study, domain), samples_figure(study, domain), cross_evaluation_figure(study, domain)]
    return made
