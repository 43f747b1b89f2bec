"""Sampled problems are chosen by the rule alone."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_runs import CONFIG, figure_of, study_of, table, the_arm, write_run

from populora.domains.python import DOMAIN
from populora.report.figures.sampled_programs import sampled_programs, samples_figure


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
    return [(row["step"], row["kind"], row["problem_id"]) for row in sampled_programs(the_arm(folder), DOMAIN)]


def expected(folder: Path, steps: Sequence[int], third: int) -> list[tuple[int, str, str]]:
    choices = []
    for step in steps:
        order = by_the_rule(folder, step)
        choices.append((step, "median", order[(len(order) - 1) // 2][-1]))
        if step == third:
            choices.append((step, "most trivial", order[0][-1]))
    return choices


@pytest.mark.parametrize(("steps", "done", "taken", "third"), [
    (40, 0, (1, 10, 20, 40), 20),  # a fifth of the paper's 200 steps, of which 5, 50, 100 and 200 are taken
    (20, 0, (1, 5, 10, 20), 10),  # 0.5 of a step is the first
    (20, 12, (1, 5, 10), 10),  # going on: what has been reached
    (6, 0, (1, 3, 6), 3),  # 0.15 and 1.5, which is as near to 1 as to 2, are the first
    (2, 0, (1, 2), 1),
    (6, 1, (1,), 0),
])  # fmt: skip
def test_the_median_of_four_steps_and_the_most_trivial_of_the_third(make_long, steps, done, taken, third):
    run = make_long(steps, done)
    assert chosen(run) == expected(run, taken, third)


def test_rows_hold_the_programs_and_numbers_of_the_tables(runs):
    figure = figure_of(lambda study: samples_figure(study, "python"), study_of(runs["pair"], runs["pair-1"], runs["agent"]))
    assert figure.runs == "the first run of each arm: baseline (1 agent): agent, seed 0; 2T+2S: pair, seed 0"
    for row in figure.rows:
        run = runs["agent" if row["author"] == "A0" else "pair"]
        (proposal,) = [candidate for candidate in table(run, "proposals", row["step"]) if candidate["problem_id"] == row["problem_id"]]
        (problem,) = [candidate for candidate in table(run, "problems", row["step"]) if candidate["problem_id"] == row["problem_id"]]
        assert row == {
            "arm": row["arm"], "kind": row["kind"], "program": problem["program"],
            **{name: proposal[name] for name in
               ("step", "author", "task", "problem_id", "rho", "ast_depth", "cyclomatic", "loc", "variables")},
        }  # fmt: skip
    assert list(csv.DictReader(io.StringIO(figure.csv()))) == [{name: str(value) for name, value in row.items()} for row in figure.rows]
    texts = [text.get_text() for axis in figure.draw().axes for text in axis.texts]
    assert all(row["program"] in texts for row in figure.rows)
