"""Arms compared over seeds: differences and Welch's intervals against the textbook's formula and `scipy.stats`."""

import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean, variance

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from report_runs import AGENT, CONFIG, figure_of, logged, study_of, the_run, without_steps, write_run
from scipy import stats

from populora.report.figure import MissingFigure
from populora.report.figures.arm_comparison import comparison_figure, value_at_end, welch


def by_the_book(ours: list[float], theirs: list[float]) -> tuple[float, float]:
    """Welch and Satterthwaite."""
    a, b = variance(ours) / len(ours), variance(theirs) / len(theirs)
    freedom = (a + b) ** 2 / (a**2 / (len(ours) - 1) + b**2 / (len(theirs) - 1))
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(a + b)
    return fmean(ours) - fmean(theirs) - half, fmean(ours) - fmean(theirs) + half


METRICS = (
    "student/solve_rate", "teacher/difficulty", "teacher/validity", "teacher/loc", "teacher/cyclomatic", "teacher/ast_depth",
    "teacher/variables", "archive/coverage", "student/response_length", "teacher/response_length", "held_out/accuracy",
)  # fmt: skip
"""Those of Python alone."""
SEVERAL = st.lists(st.floats(-100, 100), min_size=2, max_size=6)


@given(SEVERAL, SEVERAL)
def test_an_interval_is_welchs(ours, theirs):
    assume(variance(ours) > 1e-6 and variance(theirs) > 1e-6)
    assert welch(ours, theirs)[:2] == pytest.approx(by_the_book(ours, theirs), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("ours", "theirs"), [([1.0], [1.0, 2.0]), ([1.0, 2.0], [3.0]), ([], [1.0]), ([2.0, 2.0], [2.0, 2.0])])
def test_one_run_or_runs_without_any_difference_have_no_interval(ours, theirs):
    assert welch(ours, theirs) == (None, None, None)


@pytest.fixture(scope="module")
def long(tmp_path_factory, make_record) -> dict[str, Path]:
    """Runs of 23 steps, whose last tenth is two."""
    root = tmp_path_factory.mktemp("long")
    configs = {"p0": CONFIG, "p1": replace(CONFIG, seed=1), "a0": AGENT, "a1": replace(AGENT, seed=1)}
    return {name: write_run(root / name, make_record, config, steps=23) for name, config in configs.items()}


def test_rows_are_means_of_the_last_tenth_a_run_a_sample(long):
    figure = figure_of(comparison_figure, study_of(*long.values()))

    def end(run: str, metric: str) -> float:
        lines = logged(long[run])
        last = [line[metric] for line in lines[-2:] if metric in line]
        return fmean(last) if last else next(line[metric] for line in reversed(lines) if metric in line)

    compared = {(row["metric"], row["arm"]): row for row in figure.rows}
    assert {metric for metric, _ in compared} == set(METRICS)
    for metric in METRICS:
        theirs, ours = ([end(f"{letter}{seed}", metric) for seed in (0, 1)] for letter in "ap")
        row, base = compared[metric, "2T+2S"], compared[metric, "baseline (1 agent)"]
        assert (row["runs"], row["mean"], row["difference"]) == pytest.approx((2, fmean(ours), fmean(ours) - fmean(theirs)))
        assert [float(value) for value in row["values"].split()] == pytest.approx(ours, rel=1e-5)
        assert (base["mean"], base["difference"], base["low"], base["high"]) == (pytest.approx(fmean(theirs)), 0.0, None, None)
        if variance(ours) + variance(theirs) > 0:
            assert (row["low"], row["high"]) == pytest.approx(by_the_book(ours, theirs), rel=1e-6)
        else:
            assert row["low"] is row["high"] is None
    assert len([axis for axis in figure.draw().axes if axis.axison]) == len({metric for metric, _ in compared})


def test_what_was_not_measured_at_the_end_has_its_last_value(long):
    run, lines = the_run(long["p0"]), logged(long["p0"])
    assert value_at_end(run, "held_out/accuracy", (20, 20)) == lines[17]["held_out/accuracy"], "not a later one"
    assert value_at_end(run, "held_out/accuracy", (1, 2)) is None
    assert value_at_end(run, "no/such", (22, 23)) is None


def test_runs_are_compared_up_to_the_last_step_that_all_have(long, tmp_path, make_record):
    short = write_run(tmp_path / "short", make_record, AGENT, steps=10)
    figure = figure_of(comparison_figure, study_of(long["p0"], long["p1"], short))
    row = next(row for row in figure.rows if (row["metric"], row["arm"]) == ("student/solve_rate", "2T+2S"))
    ours = [logged(long[name])[9]["student/solve_rate"] for name in ("p0", "p1")]
    assert [float(value) for value in row["values"].split()] == pytest.approx(ours, rel=1e-5)
    assert figure.runs.endswith("; steps 10 to 10")
    assert "the mean over the steps 10 to 10" in figure.definition


def test_a_metric_that_an_arm_lacks_is_left_out_and_named(runs, copied):
    folder = copied("agent")
    lines = [{name: value for name, value in line.items() if name != "held_out/accuracy"} for line in logged(folder)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    figure = figure_of(comparison_figure, study_of(folder, runs["pair"]))
    assert figure.draw()
    assert {row["metric"] for row in figure.rows} == set(METRICS) - {"held_out/accuracy"}
    assert "Left out, because an arm lacks them: held_out/accuracy." in figure.definition


@pytest.mark.parametrize("name", ["pair-1", "mixed"])
def test_a_run_without_a_step_is_left_out_and_named(runs, copied, name):
    """The second one of an arm, and the only one of its arm."""
    without = figure_of(comparison_figure, study_of(runs["pair"], runs["agent"]))
    figure = figure_of(comparison_figure, study_of(runs["pair"], runs["agent"], without_steps(copied(name))))
    values = [[(row["metric"], row["values"], row["difference"]) for row in each.rows] for each in (figure, without)]
    assert values[0] == values[1] and figure.runs.count("1 run, seed 0") == 2 and "2 runs" not in figure.runs and figure.draw()
    assert f"Left out, because they have no step: {name}." in figure.definition


def test_two_arms_of_which_one_has_no_step_are_not_compared_and_the_run_is_named(runs, copied):
    figure = comparison_figure(study_of(runs["pair"], without_steps(copied("agent"))))
    assert isinstance(figure, MissingFigure) and figure.reason.endswith("`. Left out, because they have no step: agent")


def test_an_arm_of_one_run_has_a_difference_without_interval_and_that_is_said(runs):
    figure = figure_of(comparison_figure, study_of(runs["pair"], runs["agent"], runs["agent-1"]))
    assert "No interval with 2T+2S: a single run says nothing" in figure.definition
    assert all(row["low"] is None for row in figure.rows) and any(row["difference"] for row in figure.rows)
    assert "No interval" not in comparison_figure(study_of(runs["pair"], runs["pair-1"], runs["agent"], runs["agent-1"])).definition
