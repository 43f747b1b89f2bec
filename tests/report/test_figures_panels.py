"""Figures that are panels of metrics over steps: their rows are the lines of the logs."""

import json
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from report_runs import figure_of, logged, study_of

from populora.core.types import CODE_TYPES
from populora.domains.registry import load_domain
from populora.report.drawing import curves_of
from populora.report.figure import Figure, MissingFigure, Study
from populora.report.figures.coverage import coverage_figure
from populora.report.figures.metric_panels import panel_figures
from populora.report.figures.panel_specs import panel_specs

SPECS = {spec.name: spec for spec in panel_specs(["python"])}
COVERAGE = ("archive/coverage", "archive/proxy", "archive/distinct_descriptors", "archive/total_problems")


def coverage_of_python(study: Study) -> Figure | MissingFigure:
    return coverage_figure(study, "python")


def expected(run: Path, metric: str, task: str) -> dict[tuple[str, int], float]:
    """Read the values by member (``all``: the run's own) and step from the log, whose metrics `tests/runs/test_metrics.py` checks."""
    values: dict[tuple[str, int], float] = {}
    for line in logged(run):
        ending, step = f"/{task}" if task else "", int(line["step"])
        members = {name: line[key] for name in ("T0", "T1", "S0", "S1", "A0") if (key := f"{metric}/{name}{ending}") in line}
        if metric + ending in line:
            members["all"] = line[metric + ending]
        elif members and metric.startswith("learner/"):
            members["all"] = fmean(members.values())
        values |= {(member, step): value for member, value in members.items()}
    return values


@pytest.mark.parametrize("name", SPECS)
def test_rows_are_what_the_logs_say(runs, copied, name):
    spec = SPECS[name]
    if name == "population_size":
        larger = copied("pair", "larger")
        settings = json.loads((larger / "config.json").read_text())
        (larger / "config.json").write_text(json.dumps({**settings, "population": {**settings["population"], "teachers": 3}}))
        runs = {**runs, "larger": larger}
    study = study_of(*(runs[run] for run in ("pair", "pair-1", "agent", "larger") if run in runs))
    figure = panel_figures(study)[spec.name]
    assert isinstance(figure, Figure)
    values = {(row["run"], row["metric"], row["member"], row["step"]): row["value"] for row in figure.rows}
    assert len(values) == len(figure.rows), "a value has one row"
    ours = {
        (run.name, metric, member, step): value
        for arm in study.arms
        for run in arm.runs
        for panel in spec.panels
        for metric in ["/".join(filter(None, (panel.metric, panel.task)))]
        for (member, step), value in expected(runs[run.name], panel.metric, panel.task).items()
    }
    assert values == pytest.approx(ours)
    assert {row["arm"] for row in figure.rows} == {arm.label for arm in study.arms}
    assert len(figure.draw().axes) == len(spec.panels)


def test_each_panel_draws_its_own_metric(runs):
    study = study_of(runs["pair"], smooth=1)
    for spec in SPECS.values():
        figure = panel_figures(study)[spec.name]
        for axis, panel in zip(figure.draw().axes if isinstance(figure, Figure) else (), spec.panels, strict=isinstance(figure, Figure)):
            (whole,) = [curve for curve in curves_of(study.arms, panel.metric, panel.task) if curve.member == "all"] or [None]
            if whole:
                np.testing.assert_array_equal(axis.lines[-1].get_ydata(), whole.values)


METRICS = {
    "dynamics": {
        "solver: solve rate": "student/solve_rate", "solver: format rate": "student/format_rate",
        "teacher: difficulty": "teacher/difficulty", "teacher: validity": "teacher/validity",
    },
    "diagnostics": {
        "gradient norm": "learner/grad_norm", "policy-gradient loss": "learner/loss", "entropy of proposals, nats": "teacher/entropy",
        "entropy of answers, nats": "student/entropy",
    },
    "response_length": {
        "proposals, tokens": "teacher/response_length", "answers, tokens": "student/response_length",
        "answers cut at the limit": "student/clipped",
    },
    "reward_hacking": {
        "answers out of format, by author": "teacher/rho_format_fail", "programs that repeat one": "teacher/duplicates",
        "problems never solved": "teacher/rho_zero", "problems always solved": "teacher/rho_one", "void attempts": "student/void",
        "solved outside the fence": "student/lenient_solved", "no variance: groups of proposals": "teacher/zero_variance",
        "no variance: groups of answers": "student/zero_variance",
    },
    "sampler_gap": {
        "KL, nats a token": "learner/kl", "mean difference, nats": "learner/mean_difference",
        "largest difference, nats": "learner/max_difference", "effective sample size": "learner/ess",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", METRICS)
def test_a_panel_has_the_title_of_its_metric(name):
    assert {panel.title: panel.metric for panel in SPECS[name].panels} == METRICS[name]


def test_panels_of_types_and_of_complexity_have_the_title_of_their_metric():
    rates = {"solve rate": "student/solve_rate", "validity": "teacher/validity"}
    per_type = {(panel.title, panel.metric, panel.task) for panel in SPECS["dynamics_per_type"].panels}
    assert per_type == {(f"{task}: {title}", metric, task) for task in CODE_TYPES for title, metric in rates.items()}
    assert [(panel.title, panel.metric) for panel in SPECS["complexity"].panels] == [
        (metric.label, f"teacher/{metric.name}") for metric in load_domain("python").metrics
    ]


def test_coverage_has_the_lines_of_the_logs_of_both_arms(runs):
    figure = figure_of(coverage_of_python, study_of(runs["pair"], runs["agent"]))
    assert {(row["run"], row["metric"], row["step"]): row["value"] for row in figure.rows} == {
        (run, name, line["step"]): line[name] for run in ("pair", "agent") for line in logged(runs[run]) for name in COVERAGE
    }
    assert len(figure.rows) == 2 * 4 * 6 and {row["member"] for row in figure.rows} == {"all"}


def test_a_caption_explains_bands_and_bold_lines_only_where_there_are_several_members_or_runs(runs):
    captions = {
        names: panel_figures(study_of(*(runs[name] for name in names)))["dynamics"].definition.partition("student's. ")[2]
        for names in (("agent",), ("agent", "agent-1"), ("pair",), ("pair", "pair-1"))
    }
    smoothed, ends = "Lines are trailing means; the CSV has the logged values.", "up to the step where the first of them ends"
    assert list(captions.values()) == [
        smoothed,
        f"Bold: mean over the runs of an arm, {ends}. Band: from the lowest to the highest run. {smoothed}",
        f"Bold: all members together. Band: from the lowest to the highest member. {smoothed}",
        f"Bold: all members together, mean over the runs of an arm, {ends}. Band: from the lowest to the highest member. {smoothed}",
    ]


def test_coverage_is_drawn_in_per_cent_over_steps_and_over_programs(runs):
    figure = figure_of(coverage_of_python, study_of(runs["pair"]))
    lines = logged(runs["pair"])
    over_steps, over_programs, proxy, distinct = ([axis.lines[0].get_xdata(), axis.lines[0].get_ydata()] for axis in figure.draw().axes)
    percent = [100 * line["archive/coverage"] for line in lines]
    np.testing.assert_allclose(np.array(over_steps, float), [[line["step"] for line in lines], percent])
    np.testing.assert_allclose(np.array(over_programs, float), [[line["archive/total_problems"] for line in lines], percent])
    np.testing.assert_allclose(np.array(proxy[1], float), [100 * line["archive/proxy"] for line in lines])
    np.testing.assert_allclose(np.array(distinct[1], float), [line["archive/distinct_descriptors"] for line in lines])


def test_runs_of_different_tessellations_are_not_to_be_compared(copied):
    folders = [copied(to="one"), copied("agent", "two"), copied("agent-1", "without")]
    for digests, differ in ((("aa", "aa"), False), (("aa", "bb"), True)):
        for folder, digest in zip(folders, digests, strict=False):
            facts = json.loads((folder / "run.json").read_text())
            (folder / "run.json").write_text(json.dumps({**facts, "tessellation_sha256": digest * 32}))
        figure = figure_of(coverage_of_python, study_of(*folders))
        assert ("DIFFERENT TESSELLATIONS" in figure.definition) == differ
