"""The figures of a report."""

from populora.report.figure import Figure, MissingFigure, Study
from populora.report.figures.arm_comparison import comparison_figure
from populora.report.figures.compute import compute_figure, timings_figure
from populora.report.figures.downstream import downstream_figures
from populora.report.figures.failure_reasons import reasons_figure
from populora.report.figures.lineage_tree import lineage_figure
from populora.report.figures.matchups import cross_evaluation_figure, trueskill_figure
from populora.report.figures.metric_panels import coverage_figure, panel_figures
from populora.report.figures.retention_grids import retention_figures
from populora.report.figures.sampled_programs import samples_figure


def make_figures(study: Study) -> list[Figure | MissingFigure]:
    """Make every figure of a study, in the order of the page: those of the paper, then the others."""
    panels = panel_figures(study)
    return [
        panels["dynamics"],
        panels["dynamics_per_type"],
        panels["solve_rate_by_type"],
        panels["complexity"],
        coverage_figure(study),
        trueskill_figure(study),
        cross_evaluation_figure(study),
        panels["population_size"],
        *retention_figures(study),
        *downstream_figures(study),
        panels["diagnostics"],
        panels["response_length"],
        compute_figure(study),
        samples_figure(study),
        lineage_figure(study),
        panels["reward_hacking"],
        reasons_figure(study),
        panels["sampler_gap"],
        timings_figure(study),
        comparison_figure(study),
    ]
