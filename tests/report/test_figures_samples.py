"""Sampled problems are chosen by the rule alone, and programs are counted as the paper and as radon count them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from radon.complexity import cc_visit
from report_runs import AGENT, CONFIG, rewrite, study_of, table, the_arm, write_run

from populora.report.figure import Absent, Figure
from populora.report.figures import cyclomatic as cyclomatic_module
from populora.report.figures import samples as samples_module
from populora.report.figures.cyclomatic import cyclomatic_figure
from populora.report.figures.samples import samples, samples_figure
from populora.report.radon import RadonUnavailableError
from populora.report.rendering import drawn
from populora.sandbox.complexity import measure


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """radon here rather than in the sandbox, which takes a second to start (test_radon.py asks it)."""

    def values(programs: Sequence[str]) -> tuple[int | None, ...]:
        return tuple(None if "unreadable" in one else cc_visit(one)[0].complexity for one in programs)

    for module in (samples_module, cyclomatic_module):
        monkeypatch.setattr(module, "radon_values", values)


@pytest.fixture
def make_long(tmp_path: Path, make_record) -> Callable[..., Path]:
    """``make_long(20)``: a run of so many steps."""
    return lambda steps, done=0: write_run(tmp_path / f"run{steps}-{done}", make_record, replace(CONFIG, steps=steps), done)


def by_the_rule(folder: Path, step: int) -> list[tuple[Any, ...]]:
    """The step's candidates in order: (cyclomatic, lines, depth, text, id)."""
    programs = {row["problem_id"]: row["program"] for row in table(folder, "problems", step)}
    rows = [row for row in table(folder, "proposals", step) if row["valid"] and row["rho"] is not None and row["loc"] <= 14]
    return sorted((row["cyclomatic"], row["loc"], row["ast_depth"], programs[row["problem_id"]], row["problem_id"]) for row in rows)


def chosen(folder: Path) -> list[tuple[int, str, str]]:
    return [(row["step"], row["kind"], row["problem_id"]) for row in samples(the_arm(folder))]


def expected(folder: Path, steps: Sequence[int], third: int) -> list[tuple[int, str, str]]:
    found = []
    for step in steps:
        order = by_the_rule(folder, step)
        found.append((step, "median", order[(len(order) - 1) // 2][-1]))
        if step == third:
            found.append((step, "most trivial", order[0][-1]))
    return found


def test_the_median_of_four_steps_and_the_most_trivial_of_the_third(make_long):
    long = make_long(40)  # a fifth of the paper's 200 steps, of which 5, 50, 100 and 200 are taken
    assert chosen(long) == expected(long, (1, 10, 20, 40), 20)


@pytest.mark.parametrize(("steps", "done", "taken", "third"), [
    (20, 0, (1, 5, 10, 20), 10),  # 0.5 of a step is the first
    (20, 12, (1, 5, 10), 10),  # going on: what has been reached
    (6, 0, (1, 3, 6), 3),  # 0.15 and 1.5, which is as near to 1 as to 2, are the first
    (2, 0, (1, 2), 1),
    (6, 1, (1,), 0),
])  # fmt: skip
def test_a_run_of_another_length_has_its_steps_at_the_same_shares(make_long, steps, done, taken, third):
    run = make_long(steps, done)
    assert chosen(run) == expected(run, taken, third)


def test_rows_hold_the_programs_and_numbers_of_the_tables(runs):
    figure = samples_figure(study_of(runs["pair"], runs["pair-1"], runs["agent"]))
    assert isinstance(figure, Figure)
    assert figure.shown == "the first run of each arm: baseline (1 agent): agent, seed 0; 2T+2S: pair, seed 0"
    for row in figure.rows:
        run = runs["agent" if row["author"] == "A0" else "pair"]
        (proposal,) = [one for one in table(run, "proposals", row["step"]) if one["problem_id"] == row["problem_id"]]
        (problem,) = [one for one in table(run, "problems", row["step"]) if one["problem_id"] == row["problem_id"]]
        assert row == {
            "arm": row["arm"], "kind": row["kind"], "program": problem["program"], "radon": cc_visit(problem["program"])[0].complexity,
            **{name: proposal[name] for name in
               ("step", "author", "task", "problem_id", "rho", "ast_depth", "cyclomatic", "loc", "variables")},
        }  # fmt: skip
    assert list(csv.DictReader(io.StringIO(figure.csv()))) == [{name: str(value) for name, value in row.items()} for row in figure.rows]
    texts = [text.get_text() for axis in drawn(figure).axes for text in axis.texts]
    assert all(row["program"] in texts for row in figure.rows)


def test_beside_several_baselines_the_population_keeps_its_column(runs, tmp_path, make_record):
    other = write_run(tmp_path / "other", make_record, replace(AGENT, learner=replace(AGENT.learner, learning_rate=0.5)))
    figure = samples_figure(study_of(runs["pair"], runs["agent"], other))
    assert isinstance(figure, Figure) and len({row["arm"] for row in figure.rows}) == 2
    assert figure.shown.endswith("agent, seed 0; 2T+2S: pair, seed 0")
    titles = [axis.get_title("left") for axis in drawn(figure).axes]
    assert any(title.startswith("2T+2S, step 6: T") for title in titles), titles


def test_what_is_not_as_in_the_paper_is_said(runs):
    figure = samples_figure(study_of(runs["pair"]))
    assert isinstance(figure, Figure)
    for ours in ("stops at step 100", "most trivial problem of the baseline alone", "one teacher", "over all teachers"):
        assert ours in figure.definition


@pytest.mark.parametrize("names", [("pair",), ("agent",)])
def test_one_arm_alone_is_shown(runs, names):
    figure = samples_figure(study_of(*(runs[name] for name in names)))
    assert isinstance(figure, Figure) and len({row["arm"] for row in figure.rows}) == 1 and drawn(figure)


def test_void_and_long_programs_are_no_candidates(copied):
    folder = copied()
    for step in range(1, 7):
        rewrite(folder, "proposals", step, lambda found: found.set_column(
            found.column_names.index("loc"), "loc", pa.array([15] * len(found), pa.int32())))  # fmt: skip
    found = samples_figure(study_of(folder))
    assert isinstance(found, Absent) and "no valid problems" in found.reason


def test_without_radon_the_samples_stay_and_the_comparison_says_why(runs, monkeypatch):
    def missing(programs: Sequence[str]):
        raise RadonUnavailableError("its process ended")

    for module in (samples_module, cyclomatic_module):
        monkeypatch.setattr(module, "radon_values", missing)
    figure = samples_figure(study_of(runs["pair"]))
    assert isinstance(figure, Figure) and {row["radon"] for row in figure.rows} == {"not here: its process ended"} and drawn(figure)
    absent = cyclomatic_figure(study_of(runs["pair"]))
    assert isinstance(absent, Absent) and absent.reason == "its process ended"


def test_both_counts_are_of_the_first_written_programs_of_each_step(tmp_path, make_record):
    program = "def f(x):\n    return [y if y else 1 for y in x if y or x]"
    run = write_run(tmp_path / "run", make_record, program=program)
    figure = cyclomatic_figure(study_of(run))
    assert isinstance(figure, Figure)
    written = [row for row in table(run, "proposals") if row["valid"] and row["task"] != "code_f"]
    assert [(row["problem_id"], row["cyclomatic"]) for row in figure.rows] == [(one["problem_id"], one["cyclomatic"]) for one in written]
    assert {row["radon"] for row in figure.rows} == {cc_visit(program)[0].complexity} != {measure(program).cyclomatic}
    equal = sum(row["cyclomatic"] == row["radon"] for row in figure.rows)
    assert f"{len(written)} in all: equal on {100 * equal / len(written):.1f} %" in figure.definition
    assert drawn(figure)


def test_a_long_run_is_asked_at_ten_steps_for_thirty_programs(make_long, monkeypatch):
    monkeypatch.setattr(cyclomatic_module, "PROGRAMS", 2)
    figure = cyclomatic_figure(study_of(make_long(40)))
    assert isinstance(figure, Figure)
    steps = [row["step"] for row in figure.rows]
    assert sorted(set(steps)) == [1, 5, 9, 14, 18, 22, 27, 31, 35, 40] and max(map(steps.count, steps)) == 2


def test_programs_that_radon_cannot_read_are_left_out(runs, tmp_path, make_record):
    beside = write_run(tmp_path / "unread", make_record, program="unreadable")
    figure = cyclomatic_figure(study_of(runs["agent"], beside))
    assert isinstance(figure, Figure) and {row["run"] for row in figure.rows} == {"agent"}
    alone = cyclomatic_figure(study_of(beside))
    assert isinstance(alone, Absent) and "radon can read none" in alone.reason
