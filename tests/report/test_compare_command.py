"""`populora compare`: the figure's numbers on the terminal and in files, with p corrected over the table."""

import csv
from dataclasses import replace

import pytest
from report_runs import AGENT, CONFIG, figure_of, study_of, without_steps, write_run

from populora.cli.compare import comparison_tables, main, with_corrected_p
from populora.core.errors import ConfigError
from populora.evals.comparison import holm
from populora.report.figures.arm_comparison import comparison_figure


@pytest.fixture(scope="module")
def runs(tmp_path_factory, make_record):
    root = tmp_path_factory.mktemp("compared")
    configs = {"p0": CONFIG, "p1": replace(CONFIG, seed=1), "a0": AGENT, "a1": replace(AGENT, seed=1)}
    return {name: write_run(root / name, make_record, config, steps=10) for name, config in configs.items()}


def test_the_table_has_the_figures_numbers_and_p_by_holm(runs, tmp_path, capsys):
    folders = [str(folder) for folder in runs.values()]
    assert main([*folders, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "baseline (1 agent)" in printed and "2T+2S" in printed and "solve rate" in printed and "Holm" in printed
    rows = list(csv.DictReader((tmp_path / "out" / "comparison.csv").open()))
    figure = figure_of(comparison_figure, study_of(*runs.values()))
    assert [(row["metric"], row["arm"], float(row["difference"])) for row in rows] == [
        (row["metric"], row["arm"], row["difference"]) for row in figure.rows
    ]
    tested = [row for row in figure.rows if row["p"] is not None]
    assert tested and [float(row["p_corrected"]) for row in rows if row["p_corrected"]] == holm([row["p"] for row in tested])
    means, differences = (tmp_path / "out" / "comparison.md").read_text().split("Differences to baseline")
    assert "| solve rate |" in means and "| solve rate |" in differences and "–" not in differences


def test_what_is_significant_only_before_the_correction_is_not_bold(runs):
    study = study_of(*runs.values())
    tested = [row for row in figure_of(comparison_figure, study).rows if row["p"] is not None]
    base = {row["metric"]: row for row in comparison_figure(study).rows if row["p"] is None and row["arm"] == "baseline (1 agent)"}
    rows = [{**row, "p": 0.001 if index == 0 else 0.04} for index, row in enumerate(tested)]
    _, differences = comparison_tables(study, with_corrected_p([each for row in rows for each in (base[row["metric"]], row)]))
    assert [row.cells[0].bold for row in differences.rows] == [True] + [False] * (len(rows) - 1) and len(rows) > 2


def test_a_single_run_has_a_difference_and_no_interval(runs, capsys):
    assert main([str(runs["p0"]), str(runs["a0"])]) == 0
    assert "a single run says nothing about how much seeds differ" in " ".join(capsys.readouterr().out.split())


def test_a_run_without_a_step_is_left_out_and_named(runs, tmp_path, make_record, capsys):
    config = replace(CONFIG, selfplay=replace(CONFIG.selfplay, rho_samples=3))
    begun = without_steps(write_run(tmp_path / "begun", make_record, config, steps=1))
    assert main([str(runs["p0"]), str(runs["a0"]), str(begun)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "solve rate" in printed and "rho_samples 3)" not in printed and "Left out, because they have no step: begun." in printed
    with pytest.raises(ConfigError, match=r"two or more.* Left out, because they have no step: begun"):
        main([str(runs["p0"]), str(begun)])


def test_one_arm_or_no_run_is_an_error(runs):
    with pytest.raises(ConfigError, match=r"^expected runs of two or more arms, got 1: add runs"):
        main([str(runs["p0"]), str(runs["p1"])])
    with pytest.raises(ConfigError, match=r"^expected runs of two or more arms, got 0"):
        main([])
