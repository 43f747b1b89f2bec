"""A figure that cannot be made says why."""

import json
import shutil
from dataclasses import replace

import pyarrow as pa
import pytest
from report_runs import CONFIG, logged, rewrite, study_of, without_steps, write_run

from populora.core.config import PopulationConfig
from populora.report.figure import Figure, MissingFigure
from populora.report.figures import make_figures

NEEDS_POPULATION = "it needs a run with teachers and students"


def reasons(*folders) -> dict[str, str]:
    return {figure.name: figure.reason for figure in make_figures(study_of(*folders)) if isinstance(figure, MissingFigure)}


def test_figures_of_a_population_need_one(runs):
    missing = reasons(runs["agent"])
    assert [missing[name] for name in ("trueskill", "cross_evaluation", "lineage")] == [NEEDS_POPULATION] * 3
    assert "give a run of each" in missing["population_size"] and "expected runs of two or more arms, got 1" in missing["comparison"]
    assert "--retention DIR" in missing["retention_live"] and "--evaluation DIR" in missing["downstream"]


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        ("attempts", {"cross_evaluation": "there are no attempts in the run's tables"}),
        ("loc", {"samples": "there are no valid problems in the runs' tables"}),
        ("reasons", {"reasons": "no run has counts of reasons"}),
        ("timings", {"compute": "no run has timings.jsonl", "phase_timings": "no run has timings.jsonl"}),
        ("all", {"lineage": "the run has no ratings yet", "coverage": "no run has archive/coverage"}),
    ],
)
def test_a_figure_names_the_data_that_it_lacks(copied, damage, expected):
    folder = copied()
    for step in range(1, 7):
        if damage == "attempts":
            rewrite(folder, damage, step, lambda table: table.slice(0, 0))
        elif damage == "loc":
            rewrite(folder, "proposals", step, lambda table: table.set_column(
                table.column_names.index(damage), damage, pa.nulls(len(table), table.schema.field(damage).type)))  # fmt: skip
    if damage == "reasons":
        kept = [{key: value for key, value in line.items() if "/rejected/" not in key and "/failed/" not in key} for line in logged(folder)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    elif damage == "timings":
        (folder / "timings.jsonl").unlink()
    elif damage == "all":
        shutil.rmtree(folder / "steps")
        (folder / "metrics.jsonl").unlink()
    missing = reasons(folder)
    assert {name: missing[name] for name in expected} == expected


def test_a_run_without_a_step_is_in_no_figure_and_named_by_those_that_compare_arms(runs, copied, tmp_path, make_record):
    larger = replace(CONFIG, population=PopulationConfig(teachers=3, students=3))
    begun = without_steps(write_run(tmp_path / "larger", make_record, larger, steps=1))
    figures = make_figures(study_of(runs["pair"], runs["agent"], without_steps(copied("pair-1")), begun))
    shown = {figure.name: figure.runs for figure in figures if isinstance(figure, Figure)}
    assert "2T+2S: 1 run, seed 0" in shown["dynamics"] and "2T+2S: 1 run, seed 0" in shown["reasons"]
    assert not any("3T+3S" in runs or "2 runs" in runs for runs in shown.values())
    (comparison,) = (figure for figure in figures if figure.name == "comparison")
    assert isinstance(comparison, Figure) and "no step: pair-1, larger." in comparison.definition
