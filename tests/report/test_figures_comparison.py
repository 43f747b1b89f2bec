"""Arms compared over seeds: differences and Welch's intervals against the textbook's formula and `scipy.stats`."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean, variance

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from report_runs import AGENT, CONFIG, logged, study_of, the_run, write_run
from scipy import stats

from populora.report.drawing import drawn
from populora.report.figure import Absent, Figure
from populora.report.figures.comparison import METRICS, at_the_end, comparison_figure, welch


def by_the_book(ours: list[float], theirs: list[float]) -> tuple[float, float]:
    """Welch and Satterthwaite."""
    a, b = variance(ours) / len(ours), variance(theirs) / len(theirs)
    freedom = (a + b) ** 2 / (a**2 / (len(ours) - 1) + b**2 / (len(theirs) - 1))
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(a + b)
    return fmean(ours) - fmean(theirs) - half, fmean(ours) - fmean(theirs) + half


SEVERAL = st.lists(st.floats(-100, 100), min_size=2, max_size=6)


@given(SEVERAL, SEVERAL)
def test_an_interval_is_welchs(ours, theirs):
    assume(variance(ours) > 1e-6 and variance(theirs) > 1e-6)
    assert welch(ours, theirs) == pytest.approx(by_the_book(ours, theirs), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("ours", "theirs"), [([1.0], [1.0, 2.0]), ([1.0, 2.0], [3.0]), ([], [1.0]), ([2.0, 2.0], [2.0, 2.0])])
def test_one_run_or_runs_without_any_difference_have_no_interval(ours, theirs):
    assert welch(ours, theirs) == (None, None)


@pytest.fixture(scope="module")
def long(tmp_path_factory, make_record) -> dict[str, Path]:
    """Runs of 23 steps, whose last tenth is two."""
    root = tmp_path_factory.mktemp("long")
    configs = {"p0": CONFIG, "p1": replace(CONFIG, seed=1), "a0": AGENT, "a1": replace(AGENT, seed=1)}
    return {name: write_run(root / name, make_record, config, steps=23) for name, config in configs.items()}


def test_rows_are_means_of_the_last_tenth_a_run_a_sample(long):
    figure = comparison_figure(study_of(*long.values()))
    assert isinstance(figure, Figure)

    def end(run: str, metric: str) -> float:
        lines = logged(long[run])
        last = [line[metric] for line in lines[-2:] if metric in line]
        return fmean(last) if last else next(line[metric] for line in reversed(lines) if metric in line)

    found = {(row["metric"], row["arm"]): row for row in figure.rows}
    assert {metric for metric, _ in found} == set(METRICS)
    for metric in METRICS:
        theirs, ours = ([end(f"{letter}{seed}", metric) for seed in (0, 1)] for letter in "ap")
        row, base = found[metric, "2T+2S"], found[metric, "baseline (1 agent)"]
        assert (row["runs"], row["mean"], row["difference"]) == pytest.approx((2, fmean(ours), fmean(ours) - fmean(theirs)))
        assert [float(one) for one in row["values"].split()] == pytest.approx(ours, rel=1e-5)
        assert (base["mean"], base["difference"], base["low"], base["high"]) == (pytest.approx(fmean(theirs)), 0.0, None, None)
        if variance(ours) + variance(theirs) > 0:
            assert (row["low"], row["high"]) == pytest.approx(by_the_book(ours, theirs), rel=1e-6)
        else:
            assert row["low"] is row["high"] is None
    assert len([axis for axis in drawn(figure).axes if axis.axison]) == len({metric for metric, _ in found})


def test_what_was_not_measured_at_the_end_has_its_last_value(long, runs):
    lines = logged(runs["pair"])
    assert at_the_end(the_run(runs["pair"]), "held_out/accuracy") == lines[5]["held_out/accuracy"]
    assert at_the_end(the_run(long["p0"]), "held_out/accuracy") == logged(long["p0"])[20]["held_out/accuracy"]
    assert at_the_end(the_run(long["p0"]), "no/such") is None


def test_an_arm_of_one_run_has_a_difference_without_interval_and_that_is_said(runs):
    figure = comparison_figure(study_of(runs["pair"], runs["agent"], runs["agent-1"]))
    assert isinstance(figure, Figure)
    assert "No interval with 2T+2S: a single run says nothing" in figure.definition
    assert all(row["low"] is None for row in figure.rows) and any(row["difference"] for row in figure.rows)
    assert "No interval" not in comparison_figure(study_of(runs["pair"], runs["pair-1"], runs["agent"], runs["agent-1"])).definition


def test_one_arm_is_compared_with_nothing(runs, copied):
    alone = comparison_figure(study_of(runs["pair"], runs["pair-1"]))
    assert isinstance(alone, Absent) and "give runs of two or more" in alone.reason
    folder = copied("agent")
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "other": 2.0}) + "\n")
    for table in folder.glob("steps/*"):
        table.rename(table.with_suffix(".part"))
    nothing = comparison_figure(study_of(runs["pair"], folder))
    assert isinstance(nothing, Absent) and nothing.reason == "no metric was logged in two arms"
