"""Compute accounting and the seconds of phases, against medians of the log's own lines."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from report_runs import AGENT, CONFIG, logged, study_of, write_run

from populora.report.figure import Absent, Figure
from populora.report.figures.compute import WARM_UP, compute_figure
from populora.report.figures.timings import timings_figure
from populora.report.rendering import drawn


@pytest.fixture(scope="module")
def timed(tmp_path_factory, make_record):
    """A population of 12 and 9 steps, and an agent of 4, fewer than are left out."""
    root = tmp_path_factory.mktemp("timed")
    write_run(root / "first", make_record, replace(CONFIG, steps=12))
    write_run(root / "second", make_record, replace(CONFIG, steps=12, seed=1), steps=9)
    write_run(root / "agent", make_record, replace(AGENT, steps=4))
    return root


def seconds(folder, name: str = "seconds/step") -> list[float]:
    return [line[name] for line in logged(folder, "timings.jsonl")]


def test_a_step_costs_the_median_of_all_steps_of_the_arm_without_each_runs_first_ones(timed):
    figure = compute_figure(study_of(timed / "first", timed / "second", timed / "agent"))
    assert isinstance(figure, Figure) and WARM_UP == 5
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
    bars = [patch.get_width() for patch in drawn(figure).axes[0].patches]
    assert bars == pytest.approx([theirs, ours])


def test_the_table_has_the_numbers_of_the_rows(timed):
    figure = compute_figure(study_of(timed / "first", timed / "agent"))
    assert isinstance(figure, Figure)
    (table,) = figure.tables
    agent, population = [[cell.text for cell in row.cells] for row in table.rows]
    assert [row.label for row in table.rows] == ["baseline (1 agent)", "2T+2S"]
    assert agent[:3] == ["1", "4", "4"] and agent[6:] == ["1.00", "1.00"] and population[:3] == ["4", "12", "48"]
    keys = ("hours", "seconds_per_step", "seconds_per_adapter_step", "ratio", "ratio_per_adapter")
    for text, key in zip(population[3:], keys, strict=True):
        assert float(text) == pytest.approx(figure.rows[1][key], rel=0.05), key
    assert population[4] == f"{figure.rows[1]['seconds_per_step']:.2f}"


def test_hours_of_runs_of_different_numbers_of_steps_are_of_their_mean(tmp_path, make_record):
    for name, seed, steps in (("first", 0, 12), ("second", 1, 7)):
        write_run(tmp_path / name, make_record, replace(CONFIG, steps=steps, seed=seed))
    for order in (("first", "second"), ("second", "first")):
        figure = compute_figure(study_of(*(tmp_path / name for name in order)))
        assert isinstance(figure, Figure)
        (row,) = figure.rows
        assert (row["steps"], row["adapter_steps"]) == (9.5, 38) and row["hours"] == pytest.approx(row["seconds_per_step"] * 9.5 / 3600)
        assert [cell.text for cell in figure.tables[0].rows[0].cells[:3]] == ["4", "9.50", "38.00"]


def test_what_the_settings_do_not_say_is_not_known(copied):
    folder = copied()
    (folder / "config.json").write_text("{}")
    figure = compute_figure(study_of(folder))
    assert isinstance(figure, Figure)
    (row,) = figure.rows
    assert row["seconds_per_step"] > 0
    assert [row[key] for key in ("adapters", "steps", "adapter_steps", "seconds_per_adapter_step", "hours", "ratio")] == [None] * 6
    assert [cell.text for cell in figure.tables[0].rows[0].cells].count("–") == 7 and drawn(figure)


def test_without_a_baseline_there_is_no_ratio(timed):
    figure = compute_figure(study_of(timed / "first"))
    assert isinstance(figure, Figure)
    assert [cell.text for cell in figure.tables[0].rows[0].cells[6:]] == ["–", "–"]
    assert [(row["ratio"], row["ratio_per_adapter"]) for row in figure.rows] == [(None, None)] and drawn(figure)
    assert figure.csv().splitlines()[1].split(",")[7:9] == ["", ""]


def test_phases_are_those_of_the_first_runs_log(timed):
    figure = timings_figure(study_of(timed / "second", timed / "first", timed / "agent"))
    assert isinstance(figure, Figure)
    assert {(row["run"], row["phase"], row["step"]): row["seconds"] for row in figure.rows} == {
        (run, phase, line["step"]): line[f"seconds/{phase}"]
        for run in ("second", "agent")
        for line in logged(timed / run, "timings.jsonl")
        for phase in ("propose", "solve", "update")
    }
    assert figure.shown == "the first run of each arm; baseline (1 agent): 1 run, seed 0; 2T+2S: 2 runs, seeds 1, 0"
    population = drawn(figure).axes[1].collections[-1].get_paths()[0].vertices
    for step, whole in enumerate(seconds(timed / "second"), start=1):
        assert max(population[population[:, 0] == step, 1]) == pytest.approx(whole), "the stack ends at the step's seconds"


def test_a_phase_of_another_version_is_shown_too_and_the_order_is_that_of_a_step(copied):
    folder = copied()
    text = (folder / "timings.jsonl").read_text().replace("seconds/update", "seconds/dream").replace("seconds/propose", "seconds/evolve")
    (folder / "timings.jsonl").write_text(text)
    figure = timings_figure(study_of(folder))
    assert isinstance(figure, Figure) and list(dict.fromkeys(row["phase"] for row in figure.rows)) == ["solve", "evolve", "dream"]


def test_a_step_without_a_phase_took_none_of_it(copied):
    folder = copied()
    lines = logged(folder, "timings.jsonl")
    del lines[2]["seconds/update"]
    (folder / "timings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    figure = timings_figure(study_of(folder))
    assert isinstance(figure, Figure)
    found = [row["seconds"] for row in figure.rows if row["phase"] == "update"]
    assert found[2] == 0.0 and all(math.isfinite(one) and one > 0 for one in np.delete(found, 2))


def test_what_was_not_timed_is_absent_and_its_arm_left_out(runs, copied):
    folder = copied()
    (folder / "timings.jsonl").unlink()
    for make in (compute_figure, timings_figure):
        found = make(study_of(folder))
        assert isinstance(found, Absent) and found.reason == "no run has timings.jsonl"
        beside = make(study_of(folder, runs["agent"]))
        assert isinstance(beside, Figure) and {row["arm"] for row in beside.rows} == {"baseline (1 agent)"} and "2T" not in beside.shown
        assert drawn(beside)
