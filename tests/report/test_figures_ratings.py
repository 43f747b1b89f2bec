"""Ratings over time, and who solves whose problems, against the tables."""

import math
from collections import defaultdict
from dataclasses import replace
from statistics import fmean

import numpy as np
import pyarrow as pa
import pytest
from report_runs import CONFIG, figure_of, logged, rewrite, study_of, table, write_run

from populora.report.drawing import STUDENT, TEACHER
from populora.report.figures.matchups import cross_evaluation_figure, trueskill_figure


def test_ratings_and_wins_are_those_of_the_tables(runs):
    figure = figure_of(trueskill_figure, study_of(runs["pair"], runs["pair-1"]))
    values = {(row["member"], row["metric"], row["step"]): row["value"] for row in figure.rows}
    expected = {(row["member"], "rating/mu", row["step"]): row["mu"] for row in table(runs["pair"], "ratings")}
    played = defaultdict(list)
    for row in table(runs["pair"], "matchups"):
        if row["outcome"] in ("student", "teacher"):
            played[row["step"]].append(row["outcome"] == "student")
    expected |= {("all", "matchup/student_wins", step): fmean(won) for step, won in played.items()}
    assert values == expected and len(values) == len(figure.rows)
    assert figure.runs.startswith("2T+2S: run pair, seed 0 (the first of 2)")


def test_bold_lines_are_the_means_of_the_roles_and_the_leads_add_up_to_one(runs):
    teachers, students, wins = figure_of(trueskill_figure, study_of(runs["pair"])).draw().axes
    for axis, role in ((teachers, "teacher"), (students, "student")):
        means = defaultdict(list)
        for row in table(runs["pair"], "ratings"):
            if row["role"] == role:
                means[row["step"]].append(row["mu"])
        bold = max(axis.lines, key=lambda line: line.get_linewidth())
        np.testing.assert_allclose(np.asarray(bold.get_ydata(), float), [fmean(means[step]) for step in sorted(means)])
        assert len(axis.lines) == 3
    drawn = {line.get_label(): (line.get_color(), np.asarray(line.get_ydata(), float)) for line in wins.lines}
    logs = np.array([line.get("matchup/student_wins", math.nan) for line in logged(runs["pair"])])
    np.testing.assert_allclose(drawn["students"][1], [np.nanmean(logs[max(0, end - 5) : end]) for end in range(1, len(logs) + 1)])
    np.testing.assert_allclose(drawn["students"][1] + drawn["teachers"][1], 1)
    assert (drawn["students"][0], drawn["teachers"][0]) == (STUDENT, TEACHER)


def test_agents_that_share_adapters_have_one_panel_of_ratings(tmp_path, make_record):
    config = replace(CONFIG, population=replace(CONFIG.population, shared_adapters=True))
    run = write_run(tmp_path / "run", make_record, config)
    figure = figure_of(trueskill_figure, study_of(run))
    agents, wins = figure.draw().axes
    assert agents.get_title(loc="left") == "mu of agents" and wins.get_title(loc="left") == "matchups won"
    drawn = [np.asarray(line.get_ydata(), float).tolist() for line in agents.lines]
    by_agent = [[row["mu"] for row in table(run, "ratings") if row["member"] == name] for name in ("A0", "A1")]
    assert drawn == [*by_agent, np.mean(by_agent, axis=0).tolist()] and len(wins.lines) == 2


def test_the_caption_says_by_which_rule_a_student_wins(tmp_path, make_record):
    config = replace(CONFIG, league=replace(CONFIG.league, outcome="threshold", threshold=0.25))
    run = write_run(tmp_path / "run", make_record, config, steps=1)
    assert figure_of(trueskill_figure, study_of(run)).definition.endswith("if mean rho is above 0.25.")


@pytest.mark.parametrize("steps", [1, 3, 11])
def test_a_snapshot_is_a_fifth_of_the_run(tmp_path, make_record, steps):
    run = write_run(tmp_path / "run", make_record, steps=steps)
    figure = figure_of(cross_evaluation_figure, study_of(run))
    ends = sorted({math.ceil(steps * fifth / 5) for fifth in range(1, 6)})
    expected = defaultdict(list)
    for row in table(run, "attempts"):
        if not row["void"] and not row["filled"]:
            expected[min(end for end in ends if end >= row["step"]), row["student"], row["author"]].append(row["correct"])
    assert {(row["snapshot"], row["student"], row["teacher"]): (row["solve_rate"], row["attempts"]) for row in figure.rows} == {
        key: (pytest.approx(fmean(values)), len(values)) for key, values in expected.items()
    }
    assert {row["snapshot"] for row in figure.rows} == set(ends)
    assert len(figure.draw().axes) == 2 * len(ends)


def test_matrices_have_students_in_rows_and_profiles_are_their_rows(tmp_path, make_record):
    """Three students, of whom two met each teacher: a transposed matrix would be another one."""
    run = write_run(tmp_path / "run", make_record, steps=20)
    for step in range(1, 21):
        rewrite(run, "attempts", step, lambda table: third(table) if table["step"][0].as_py() % 2 else table)
    figure = figure_of(cross_evaluation_figure, study_of(run))
    rates = {(row["snapshot"], row["student"], row["teacher"]): row["solve_rate"] for row in figure.rows}
    assert {student for _, student, _ in rates} == {"S0", "S1", "S10"}
    axes = figure.draw().axes
    for column, end in enumerate((4, 8, 12, 16, 20)):
        expected = [[rates.get((end, student, teacher), math.nan) for teacher in ("T0", "T1")] for student in ("S0", "S1", "S10")]
        profiles, matrix = axes[column], axes[5 + column]
        (image,) = matrix.images
        np.testing.assert_allclose(np.ma.filled(image.get_array(), math.nan), expected)
        np.testing.assert_allclose([np.asarray(line.get_ydata(), float) for line in profiles.lines], expected)
        assert [label.get_text() for label in matrix.get_yticklabels()] == ["S0", "S1", "S10"]


def third(attempts: pa.Table) -> pa.Table:
    """The attempts of S0 as those of another student."""
    students = ["S10" if name == "S0" else name for name in attempts["student"].to_pylist()]
    return attempts.set_column(attempts.column_names.index("student"), "student", pa.array(students, attempts["student"].type))
