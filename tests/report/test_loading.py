"""A run's files are read as far as they are whole, and what is not is named."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from report_runs import logged, rewrite, table, the_run

from populora.core.errors import RunDirectoryError
from populora.report.loading import RunData
from populora.runs.records import SCHEMAS

NOT_IN_TABLES = ("learner/", "archive/", "held_out/", "tokens/")


def values_of(run: RunData) -> list[dict[str, float]]:
    """The log as lines again."""
    log = run.metrics
    lines = [{"step": int(step), **{name: float(of[index]) for name, of in log.columns.items()}} for index, step in enumerate(log.steps)]
    return [{name: value for name, value in line.items() if not math.isnan(value)} for line in lines]


def test_a_log_is_read_as_it_was_written(runs):
    run = the_run(runs["pair"])
    assert values_of(run) == logged(runs["pair"]) and run.missing == []
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
def test_a_damaged_line_is_named_and_its_step_computed_again(copied, damage: str):
    folder = copied()
    lines = (folder / "metrics.jsonl").read_bytes().split(b"\n")
    before = logged(folder)
    lines[2] = damage.encode("utf-8", "surrogateescape")
    (folder / "metrics.jsonl").write_bytes(b"\n".join(lines))
    run = the_run(folder)
    found = values_of(run)
    assert found[2] == {name: value for name, value in before[2].items() if not name.startswith(NOT_IN_TABLES)}
    assert [*found[:2], *found[3:]] == [*before[:2], *before[3:]]
    assert any("line 3 of metrics.jsonl is damaged" in note for note in run.missing)
    assert any("lacks steps" in note and note.endswith("(step 3)") for note in run.missing)


def test_a_last_line_that_a_kill_cut_short_is_no_damage(copied):
    folder = copied()
    (folder / "metrics.jsonl").write_bytes((folder / "metrics.jsonl").read_bytes()[:-20])
    run = the_run(folder)
    assert run.metrics.steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert not any("damaged" in note for note in run.missing) and any("lacks steps" in note for note in run.missing)


def test_metrics_that_are_gone_are_computed_from_the_tables_as_they_were_logged(copied, reported):
    folder = copied()
    expected = [{name: value for name, value in line.items() if not name.startswith(NOT_IN_TABLES)} for line in logged(folder)]
    (folder / "metrics.jsonl").unlink()
    run = the_run(folder)
    assert values_of(run) == expected
    assert "metrics.jsonl is not there" in run.missing and any("6 of the steps 1 to 6" in note for note in run.missing)
    assert "metrics.jsonl is not there" in reported(folder)


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
    column = "member" if name in ("ratings", "children") else "teacher" if name == "matchups" else "author"
    assert run.table(name, ("step", column)).to_pylist() == [
        {"step": row["step"], column: row[column]} for row in (table(folder, name, 1, 3, 4, 5) if damage == "gone" else other(folder, name))
    ]
    assert any(note.startswith(f"{name}.parquet cannot be read") and "2 of the steps 2 to 6" in note for note in run.missing)
    if damage == "gone":
        text = reported(folder)
        if name != "problems":
            assert f"{name}.parquet cannot be read" in text


def other(folder: Path, name: str) -> list[dict]:
    """The rows of the steps whose files are whole."""
    paths = [folder / "steps" / f"step_{step:05d}" / f"{name}.parquet" for step in (1, 3, 4, 5)]
    return [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


def test_a_file_of_an_earlier_version_is_read_without_what_it_did_not_write_yet(copied):
    folder = copied()
    (folder / "metrics.jsonl").unlink()
    rewrite(folder, "proposals", 2, lambda found: found.drop_columns(["repeat"]))
    run = the_run(folder)
    assert math.isnan(run.metrics.get("teacher/duplicates")[1]) and not math.isnan(run.metrics.get("teacher/duplicates")[2])
    assert not math.isnan(run.metrics.get("teacher/validity")[1])
    assert any("no column 'repeat'" in note and "step 2" in note for note in run.missing)


def test_columns_of_another_type_are_left_out_and_named(copied):
    folder = copied()
    rewrite(folder, "matchups", 3, lambda found: found.set_column(1, "teacher", pa.array([{"a": 1}] * len(found))))
    run = the_run(folder)
    assert {row["step"] for row in run.table("matchups", ("step", "teacher")).to_pylist()} == {1, 2, 4, 5, 6}
    assert any("matchups.parquet cannot be read" in note and "step 3" in note for note in run.missing)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path, tmp_path / "absent", tmp_path / "file"):
        with pytest.raises(RunDirectoryError, match=r"is not a run directory: expected a 'config.json'"):
            RunData(folder)
