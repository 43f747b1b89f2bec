"""Every student against every teacher: pairs that meet in the coming step have the same attempts there, and the report draws all."""

import csv
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from report_runs import figure_of, study_of
from small_run import SMALL, Silent, contents

from populora.cli.main import main
from populora.core.config import EvaluationConfig, PopulationConfig
from populora.core.errors import RunDirectoryError
from populora.evals.all_pairs import mean_rates, pair_tables, solve_rates
from populora.report.figures.matchups import cross_evaluation_figure
from populora.runs.tables import read_table
from populora.training.loop import resume, train

CONFIG = replace(SMALL, steps=2, evaluation=EvaluationConfig())


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was stopped after its first step."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    train(CONFIG, folder, Silent(), stop=iter([False, True]).__next__)
    return folder


@pytest.fixture
def begun(stopped, tmp_path):
    """A copy of it, to work on."""
    return Path(shutil.copytree(stopped, tmp_path / "run", symlinks=True))


@pytest.mark.slow
def test_pairs_that_meet_in_the_coming_step_solve_as_much_there(begun):
    before = contents(begun)
    rows = solve_rates(begun)
    assert contents(begun) == before
    rates = {(row["student"], row["teacher"]): (row["solve_rate"], row["attempts"]) for row in rows}
    assert set(rates) == {(student, teacher) for student in ("S0", "S1") for teacher in ("T0", "T1")}
    resume(begun, Silent())
    assert solve_rates(begun, 1) == rows, "the checkpoint of the first step is kept"
    with pytest.raises(RunDirectoryError, match="no checkpoint of step 7, but of 1, 2: a run keeps more with keep_checkpoints_every"):
        solve_rates(begun, 7)
    met = defaultdict(list)
    for row in read_table(begun, "attempts", [2]).to_pylist():
        if not row["filled"] and not row["void"]:
            met[row["student"], row["author"]].append(row["correct"])
    assert len(met) == 2 and {pair: rates[pair] for pair in met} == {pair: (fmean(solved), len(solved)) for pair, solved in met.items()}


@pytest.mark.slow
def test_the_command_prints_the_matrix_and_the_report_draws_it(begun, capsys):
    assert main(["evaluate", "pairs", str(begun), "--prompts", "2"]) == 0
    printed = capsys.readouterr().out
    with (begun / "pairs" / "step_00001.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["snapshot"] for row in rows} == {"1"} and all(f"{float(row['solve_rate']):.2f}" in printed for row in rows)
    figure = figure_of(cross_evaluation_figure, study_of(begun))
    assert [{name: str(value) for name, value in row.items()} for row in figure.rows] == rows
    assert "every student attempted" in figure.definition and figure.draw().axes[0].get_title("left") == "after step 1"
    (begun / "pairs" / "step_00001.csv").write_text("snapshot,student\n1")
    with pytest.raises(RunDirectoryError, match="pairs'"):
        cross_evaluation_figure(study_of(begun))


def test_each_of_several_domains_has_its_own_rates_and_its_own_matrix(make_mixed_record):
    attempts = [attempt for attempt in make_mixed_record(1).attempts if not attempt.from_buffer]
    rows = mean_rates(attempts, 1, ("python", "sql"))
    assert [(row["domain"], row["student"], row["teacher"], row["solve_rate"], row["attempts"]) for row in rows] == [
        ("python", "S0", "T0", 0.25, 4), ("sql", "S0", "T0", 1.0, 2),
    ]  # fmt: skip
    assert [table.caption for table in pair_tables(rows)] == ["Solve rates after step 1, python", "Solve rates after step 1, sql"]
    python = [attempt for attempt in attempts if attempt.problem.task.domain == "python"]
    (alone,) = mean_rates(python, 1, ["python"])
    assert alone == {name: value for name, value in rows[0].items() if name != "domain"}
    assert [table.caption for table in pair_tables([alone])] == ["Solve rates after step 1"]


@pytest.mark.slow
def test_runs_without_teachers_and_students_are_refused(tmp_path, capsys):
    train(replace(CONFIG, steps=1, population=PopulationConfig(single_agent=True)), tmp_path / "agent", Silent())
    assert main(["evaluate", "pairs", str(tmp_path / "agent")]) == 2
    assert "expected a run of teachers and students, got one of a single agent" in capsys.readouterr().err
    assert not (tmp_path / "agent" / "pairs").exists()
    assert main(["evaluate", "pairs", str(tmp_path / "missing")]) == 2 and not (tmp_path / "missing").exists()
    assert "missing" in capsys.readouterr().err
    assert main(["evaluate", "pairs", str(tmp_path / "agent"), "--prompts", "-1"]) == 2
    assert "--prompts is -1: expected a number of prompts" in capsys.readouterr().err
