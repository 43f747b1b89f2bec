"""Curves by what was spent: sums of the logs' own lines, means over runs, and only steps that all runs of an arm have."""

import shutil
from dataclasses import replace
from itertools import accumulate
from statistics import fmean

import pytest
from report_runs import AGENT, CONFIG, figure_of, logged, study_of, without_steps, write_run

from populora.report.figure import MissingFigure
from populora.report.figures.equal_compute import equal_compute_figure


@pytest.fixture(scope="module")
def spent(tmp_path_factory, make_record):
    """Two runs of a population, of which one is shorter, and one of an agent."""
    root = tmp_path_factory.mktemp("spent")
    write_run(root / "first", make_record, replace(CONFIG, steps=9))
    write_run(root / "second", make_record, replace(CONFIG, steps=9, seed=1), steps=7)
    write_run(root / "agent", make_record, replace(AGENT, steps=9))
    return root


def sums(folder) -> list[dict[str, float]]:
    """What a run has spent after each step."""
    lines, timings = logged(folder), logged(folder, "timings.jsonl")
    tokens = list(accumulate(line["tokens/propose"] + line["tokens/solve"] for line in lines))
    seconds = list(accumulate(line["seconds/step"] for line in timings))
    return [
        {"step": line["step"], "million_tokens": token / 1e6, "minutes": second / 60, "difficulty": line["teacher/difficulty"]}
        for line, token, second in zip(lines, tokens, seconds, strict=True)
    ]


def test_a_point_is_the_mean_over_runs_of_a_value_and_of_what_was_spent_until_then(spent):
    figure = figure_of(equal_compute_figure, study_of(spent / "first", spent / "second", spent / "agent", smooth=1))
    rows = [row for row in figure.rows if row["arm"] == "2T+2S" and row["metric"] == "teacher/difficulty"]
    both = list(zip(sums(spent / "first"), sums(spent / "second"), strict=False))
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6, 7]
    for row, pair in zip(rows, both, strict=True):
        assert {name: row[name] for name in ("million_tokens", "minutes")} == pytest.approx(
            {name: fmean(run[name] for run in pair) for name in ("million_tokens", "minutes")}
        )
        assert row["value"] == pytest.approx(fmean(run["difficulty"] for run in pair))
    drawing = figure.draw()
    assert len(drawing.axes) == 6 and all(len(axis.lines) == 2 for axis in drawing.axes)
    drawn = {len(line.get_xdata()) for line in drawing.axes[1].lines}
    assert drawn == {7, 9}, "the agent's run is longer"
    for axis, name in zip(drawing.axes, ("step", "million_tokens", "minutes"), strict=False):
        (line,) = [line for line in axis.lines if len(line.get_xdata()) == 7]
        assert list(zip(line.get_xdata(), line.get_ydata(), strict=True)) == [(row[name], row["value"]) for row in rows]


def test_difficulty_is_smoothed_and_the_accuracy_of_an_evaluation_is_not(spent):
    rows = figure_of(equal_compute_figure, study_of(spent / "first", smooth=3)).rows
    lines = {line["step"]: line for line in logged(spent / "first")}
    values = {(row["metric"], row["step"]): row["value"] for row in rows}
    evaluated = [step for step, line in lines.items() if "held_out/accuracy" in line]
    assert len(evaluated) > 1 and [step for metric, step in values if metric == "held_out/accuracy"] == evaluated
    for step in evaluated:
        assert values["held_out/accuracy", step] == pytest.approx(lines[step]["held_out/accuracy"])
    assert values["teacher/difficulty", 3] == pytest.approx(fmean(lines[step]["teacher/difficulty"] for step in (1, 2, 3)))


def test_time_that_is_not_on_record_leaves_its_panel_empty(spent, tmp_path):
    folder = shutil.copytree(spent / "first", tmp_path / "untimed")
    (folder / "timings.jsonl").unlink()
    figure = figure_of(equal_compute_figure, study_of(folder))
    assert all(row["minutes"] != row["minutes"] for row in figure.rows) and figure.draw()


def test_a_run_without_a_step_is_left_out_and_named(spent, tmp_path):
    alone = figure_of(equal_compute_figure, study_of(spent / "first", spent / "agent"))
    folder = without_steps(shutil.copytree(spent / "second", tmp_path / "begun"))
    figure = figure_of(equal_compute_figure, study_of(spent / "first", folder, spent / "agent"))
    assert figure.rows == alone.rows and figure.runs == alone.runs and figure.draw()
    assert figure.definition.endswith("Left out, because they have no step: begun.")


def test_a_run_without_either_metric_has_no_figure(spent, tmp_path):
    folder = shutil.copytree(spent / "first", tmp_path / "empty")
    (folder / "metrics.jsonl").write_text("")
    assert isinstance(equal_compute_figure(study_of(folder)), MissingFigure)
