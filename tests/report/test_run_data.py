"""A run's files are read as far as they are readable, the page lists the rest, and no figure fails for what is missing."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from report_runs import CONFIG, logged, rewrite, study_of, table, the_run

from populora.core.errors import RunDirectoryError
from populora.report.figure import MissingFigure
from populora.report.figures import make_figures
from populora.report.page import page
from populora.report.run_data import RunData
from populora.runs.directory import new_run
from populora.runs.records import SCHEMAS

OTHER = '{"population": {"teachers": "x"}, "selfplay": 4, "base": "b", "league": [], "steps": "many", "seed": {}}'


def lines_of(run: RunData) -> list[dict[str, float]]:
    """The log as lines again."""
    log = run.metrics
    lines = [{"step": int(step), **{name: float(of[index]) for name, of in log.columns.items()}} for index, step in enumerate(log.steps)]
    return [{name: value for name, value in line.items() if not math.isnan(value)} for line in lines]


def test_a_log_is_read_as_it_was_written(runs):
    run = the_run(runs["pair"])
    assert lines_of(run) == logged(runs["pair"]) and run.missing == []
    assert run.timings.get("seconds/step").tolist() == [line["seconds/step"] for line in logged(runs["pair"], "timings.jsonl")]
    assert all(math.isnan(value) for value in run.metrics.get("no/such"))
    assert run.metrics.under("rating/mu") == ["S0", "S1", "T0", "T1", "student", "teacher"]


def test_a_table_is_read_as_it_was_written_also_in_part(runs):
    run = the_run(runs["pair"])
    for name, schema in SCHEMAS.items():
        assert run.table(name, schema.names).to_pylist() == table(runs["pair"], name)
    assert run.table("attempts", ("student", "correct"), [2, 4]).to_pylist() == [
        {"student": row["student"], "correct": row["correct"]} for row in table(runs["pair"], "attempts", 2, 4)
    ]
    assert run.missing == []


@pytest.mark.parametrize(
    "damage",
    [
        "no JSON", '"text"', "[1, 2]", "{}", '{"step": "x"}', '{"step": 1e999}', '{"step": 3, "teacher/loc": "long"}',
        '{"step": 3, "a": null}', "", "\x00\x01", "\udcff",
    ],
)  # fmt: skip
def test_a_damaged_line_is_named_and_its_step_is_a_gap(copied, damage: str):
    folder = copied()
    lines = (folder / "metrics.jsonl").read_bytes().split(b"\n")
    whole = logged(folder)
    lines[2] = damage.encode("utf-8", "surrogateescape")
    (folder / "metrics.jsonl").write_bytes(b"\n".join(lines))
    run = the_run(folder)
    assert lines_of(run) == [*whole[:2], *whole[3:]]
    assert run.missing == ["line 3 of metrics.jsonl is damaged", "metrics.jsonl lacks steps, which are gaps in the figures (step 3)"]


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("damage", ["gone", "garbage", "cut", "empty", "folder"])
def test_a_table_that_cannot_be_read_is_left_out_and_named(copied, name: str, damage: str, reported):
    folder = copied()
    for step in (2, 6):  # the last one, too, which figures of the end read
        path = folder / "steps" / f"step_{step:05d}" / f"{name}.parquet"
        whole = path.read_bytes()
        path.unlink()
        if damage == "folder":
            path.mkdir()
        elif damage != "gone":
            path.write_bytes({"garbage": b"PAR1" + b"\x07" * 99 + b"PAR1", "cut": whole[: len(whole) // 2], "empty": b""}[damage])
    run = the_run(folder)
    readable = (pq.ParquetFile(folder / "steps" / f"step_{step:05d}" / f"{name}.parquet").read().to_pylist() for step in (1, 3, 4, 5))
    assert run.table(name, ("step",)).to_pylist() == [{"step": row["step"]} for rows in readable for row in rows]
    assert any(note.startswith(f"{name}.parquet cannot be read") and "2 of the steps 2 to 6" in note for note in run.missing)
    if damage == "gone":
        assert f"{name}.parquet cannot be read" in reported(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMAS)
def test_every_column_may_be_absent_and_no_figure_fails(copied, name: str):
    folder = copied()
    whole = {step: pq.ParquetFile(folder / "steps" / f"step_{step:05d}" / f"{name}.parquet").read() for step in range(1, 7)}
    for column in (column for column in SCHEMAS[name].names if column != "stream"):
        for step, original in whole.items():
            rewrite(folder, name, step, lambda _, original=original, column=column: original.drop_columns([column]))
        run = the_run(folder)
        rest = next(other for other in SCHEMAS[name].names if other != column)
        rows = run.table(name, (rest, column))
        assert f"{name}.parquet has no column '{column}': another version wrote it (6 of the steps 1 to 6)" in run.missing
        assert len(rows) == (sum(map(len, whole.values())) if column == "repeat" else 0)
        for figure in make_figures(study_of(folder)):
            assert isinstance(figure, MissingFigure) or figure.csv()


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path, tmp_path / "absent", tmp_path / "file"):
        with pytest.raises(RunDirectoryError, match=r"is not a run directory: expected a 'config.json'"):
            RunData(folder)


@pytest.mark.parametrize("content", [None, "", "[]", "7", "{", '{"versions": {"populora": "0"}, "unknown": 1}', '{"versions": 3}'])
def test_a_run_without_its_facts_is_reported(copied, content: str | None):
    folder = copied()
    (folder / "run.json").unlink()
    if content is not None:
        (folder / "run.json").write_text(content)
    text = page(study_of(folder), [])
    assert ("run.json cannot be read" in text) == (content is None or not content.startswith(("[]", '{"')))


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "{", "[3]", "{}", '{"population": 4}', OTHER])
def test_settings_that_cannot_be_read_leave_the_figures_that_need_none(copied, content: str, reported):
    for name in ("pair", "agent") if content in ("", OTHER) else ("pair",):
        folder = copied(name)
        (folder / "config.json").write_text(content)
        text = reported(folder)
        assert 'id="dynamics"' in text and 'id="dynamics" class="absent"' not in text
        assert ("config.json cannot be read" in text) == (content in ("", "{", "[3]"))


def test_a_run_without_a_finished_step_is_reported_alone_and_with_others(tmp_path: Path, runs, reported):
    with new_run(tmp_path / "empty", CONFIG, {}):
        pass
    study = study_of(tmp_path / "empty")
    figures = make_figures(study)
    assert all(isinstance(figure, MissingFigure) for figure in figures)
    text = page(study, figures)
    assert "metrics.jsonl is not there" in text and "0 of 6" in text
    assert "metrics.jsonl is not there" in reported(tmp_path / "empty", runs["pair"], baselines=(runs["agent"],))
    assert "metrics.jsonl is not there" in reported(runs["agent"], baselines=(tmp_path / "empty",))


def test_a_step_that_is_being_written_is_not_read(copied, reported):
    folder = copied()
    os.rename(folder / "steps" / "step_00006", folder / "steps" / "step_00006.part")
    for name in ("metrics.jsonl", "timings.jsonl"):
        whole = (folder / name).read_bytes().splitlines(keepends=True)
        (folder / name).write_bytes(b"".join(whole[:-1]) + whole[-1][:30])
    run = the_run(folder)
    assert run.recorded == run.metrics.steps.tolist() == run.timings.steps.tolist() == [1, 2, 3, 4, 5] and run.missing == []
    assert "5 of 6" in reported(folder)


def test_steps_without_tables_are_named(copied, reported):
    folder = copied()
    shutil.rmtree(folder / "steps" / "step_00004")
    run = the_run(folder)
    assert run.metrics.steps.tolist() == [1, 2, 3, 4, 5, 6] and any("no tables" in note and "step 4" in note for note in run.missing)
    shutil.rmtree(folder / "steps")
    assert "steps/ has no tables of steps that metrics.jsonl has (6 of the steps 1 to 6)" in reported(folder)
