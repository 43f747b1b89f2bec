"""Every figure of a report, in the order of the page: those of the paper, then what is beyond it."""

from __future__ import annotations

from populora.report.figure import Absent, Figure, Study
from populora.report.figures.calibration import calibration_figure
from populora.report.figures.comparison import comparison_figure
from populora.report.figures.compute import compute_figure
from populora.report.figures.coverage import coverage_figure
from populora.report.figures.crosseval import cross_evaluation_figure
from populora.report.figures.cyclomatic import cyclomatic_figure
from populora.report.figures.downstream import downstream_figures
from populora.report.figures.dynamics import FIGURES
from populora.report.figures.lineage import lineage_figure
from populora.report.figures.noise import noise_figure
from populora.report.figures.panels import panels_figure
from populora.report.figures.reasons import reasons_figure
from populora.report.figures.retention import retention_figures
from populora.report.figures.samples import samples_figure
from populora.report.figures.timings import timings_figure
from populora.report.figures.trueskill import trueskill_figure


def figures_of(study: Study) -> list[Figure | Absent]:
    """What the runs, evaluations and retention results of a study show."""
    panels = {spec.name: panels_figure(study, spec) for spec in FIGURES}
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
        calibration_figure(study),
        cyclomatic_figure(study),
        panels["reward_hacking"],
        reasons_figure(study),
        noise_figure(study),
        panels["sampler_gap"],
        timings_figure(study),
        comparison_figure(study),
    ]
