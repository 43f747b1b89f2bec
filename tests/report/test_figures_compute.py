"""Compute accounting and the seconds of phases, against medians of the log's own lines."""

from dataclasses import replace
from statistics import median

import pytest
from report_runs import AGENT, CONFIG, figure_of, logged, study_of, write_run

from populora.report.figure import Figure, MissingFigure
from populora.report.figures.compute import WARM_UP, compute_figure, timings_figure


@pytest.fixture(scope="module")
def timed(tmp_path_factory, make_record):
    """A population of 12 and 9 steps, and an agent of 4, fewer than are left out."""
    root = tmp_path_factory.mktemp("timed")
    write_run(root / "first", make_record, replace(CONFIG, steps=12))
    write_run(root / "second", make_record, replace(CONFIG, steps=12, seed=1), steps=9)
    write_run(root / "agent", make_record, replace(AGENT, steps=4))
    return root


def seconds(folder) -> list[float]:
    return [line["seconds/step"] for line in logged(folder, "timings.jsonl")]


def test_a_step_costs_the_median_of_all_steps_of_the_arm_without_each_runs_first_ones(timed):
    figure = figure_of(compute_figure, study_of(timed / "first", timed / "second", timed / "agent"))
    assert WARM_UP == 5
    agent, population = figure.rows
    warm = [*seconds(timed / "first")[5:], *seconds(timed / "second")[5:]]
    theirs, ours = median(seconds(timed / "agent")), median(warm)
    assert agent == {
        "arm": "baseline (1 agent)", "adapters": 1, "steps": 4, "adapter_steps": 4, "seconds_per_step": pytest.approx(theirs),
        "seconds_per_adapter_step": pytest.approx(theirs), "hours": pytest.approx(theirs * 4 / 3600), "ratio": 1.0,
        "ratio_per_adapter": 1.0, "steps_timed": 4,
    }  # fmt: skip
    assert population == {
        "arm": "2T+2S", "adapters": 4, "steps": 12, "adapter_steps": 48, "seconds_per_step": pytest.approx(ours),
        "seconds_per_adapter_step": pytest.approx(ours / 4), "hours": pytest.approx(ours * 12 / 3600),
        "ratio": pytest.approx(ours / theirs), "ratio_per_adapter": pytest.approx(ours / 4 / theirs), "steps_timed": 11,
    }  # fmt: skip
    bars = [patch.get_width() for patch in figure.draw().axes[0].patches]
    assert bars == pytest.approx([theirs, ours])


def test_without_a_baseline_there_is_no_ratio(timed):
    figure = figure_of(compute_figure, study_of(timed / "first"))
    assert [cell.text for cell in figure.tables[0].rows[0].cells[6:]] == ["–", "–"]
    assert [(row["ratio"], row["ratio_per_adapter"]) for row in figure.rows] == [(None, None)] and figure.draw()
    assert figure.csv().splitlines()[1].split(",")[7:9] == ["", ""]


def test_phases_are_those_of_the_first_runs_log(timed):
    figure = figure_of(timings_figure, study_of(timed / "second", timed / "first", timed / "agent"))
    assert {(row["run"], row["phase"], row["step"]): row["seconds"] for row in figure.rows} == {
        (run, phase, line["step"]): line[f"seconds/{phase}"]
        for run in ("second", "agent")
        for line in logged(timed / run, "timings.jsonl")
        for phase in ("propose", "solve", "update")
    }
    assert figure.runs == "the first run of each arm; baseline (1 agent): 1 run, seed 0; 2T+2S: 2 runs, seeds 1, 0"
    population = figure.draw().axes[1].collections[-1].get_paths()[0].vertices
    for step, whole in enumerate(seconds(timed / "second"), start=1):
        assert max(population[population[:, 0] == step, 1]) == pytest.approx(whole), "the stack ends at the step's seconds"


def test_what_was_not_timed_is_absent_and_its_arm_left_out(runs, copied):
    folder = copied()
    (folder / "timings.jsonl").unlink()
    for make in (compute_figure, timings_figure):
        figure = make(study_of(folder))
        assert isinstance(figure, MissingFigure) and figure.reason == "no run has timings.jsonl"
        beside = make(study_of(folder, runs["agent"]))
        assert isinstance(beside, Figure) and {row["arm"] for row in beside.rows} == {"baseline (1 agent)"} and "2T" not in beside.runs
        assert beside.draw()
