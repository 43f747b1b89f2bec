"""What a log lacks, computed again: as it was logged, or not at all and said."""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pytest
from report_runs import logged, rewrite, the_run

from populora.runs.archive import keep_tessellation

COVERAGE = ("archive/coverage", "archive/distinct_descriptors", "archive/total_problems", "archive/proxy")


def without_lines(folder, *steps):
    """Take the lines of these steps out of the log."""
    kept = [line for line, values in zip((folder / "metrics.jsonl").read_text().splitlines(), logged(folder), strict=True)
            if values["step"] not in steps]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(line + "\n" for line in kept))


def damaged(folder, step):
    (folder / "steps" / f"step_{step:05d}" / "proposals.parquet").write_bytes(b"PAR1")


def counted_by_hand(folder, step):
    """Programs and distinct descriptors up to a step, from the tables."""
    tables = [pa.parquet.ParquetFile(file).read().to_pylist() for file in sorted((folder / "steps").glob("*/proposals.parquet"))[:step]]
    rows = [row for row in reduce(list.__add__, tables) if row["valid"] and row["rho"] is not None and row["task"] != "code_f"]
    return len(rows), len({tuple(row[name] for name in ("ast_depth", "cyclomatic", "loc", "variables")) for row in rows})


def test_coverage_is_that_of_all_programs_up_to_the_step(copied):
    folder = copied()
    keep_tessellation(folder)
    without_lines(folder, 2, 5)
    run = the_run(folder)
    for index, step in ((1, 2), (4, 5)):
        total, distinct = counted_by_hand(folder, step)
        assert run.metrics.get("archive/total_problems")[index] == total
        assert run.metrics.get("archive/distinct_descriptors")[index] == distinct
        assert run.metrics.get("archive/proxy")[index] == total / 4096


def test_coverage_after_a_table_that_cannot_be_read_is_absent_not_too_low(copied):
    folder = copied()
    keep_tessellation(folder)
    without_lines(folder, 2, 6)
    damaged(folder, 4)
    run = the_run(folder)
    for name in COVERAGE:
        values = run.metrics.get(name)
        assert values[1] == values[1] and values[5] != values[5]
    assert run.metrics.get("teacher/validity")[5] == run.metrics.get("teacher/validity")[5], "the step's own values are there"
    assert "coverage cannot be computed again from step 4 on: the programs of that step are missing" in run.missing


def test_a_whole_run_lacks_nothing(copied):
    assert the_run(copied()).metrics.steps.tolist() == [1, 2, 3, 4, 5, 6]
    run = the_run(copied(to="other"))
    assert len(run.metrics.steps) == 6 and run.missing == []


@pytest.mark.parametrize(("gone", "told"), [((3,), "nothing has the steps 3 to 3"), ((1, 2), "nothing has the steps 1 to 2")])
def test_steps_that_neither_log_nor_tables_have_are_named(copied, gone, told):
    folder = copied()
    without_lines(folder, *gone)
    for step in gone:
        damaged(folder, step)
    run = the_run(folder)
    assert set(run.metrics.steps.tolist()) == {1, 2, 3, 4, 5, 6} - set(gone)
    assert told in run.missing


def test_a_measure_that_is_missing_costs_the_steps_metrics_not_the_report(copied):
    folder = copied()
    without_lines(folder, 3)
    rewrite(folder, "proposals", 3, lambda table: table.set_column(
        table.column_names.index("loc"), "loc", pa.nulls(len(table), table.schema.field("loc").type)))  # fmt: skip
    run = the_run(folder)
    assert 3 not in run.metrics.steps
    assert any(note.startswith("metrics cannot be computed again: ") and note.endswith("(step 3)") for note in run.missing)


def test_a_step_below_1_is_a_damaged_line(copied):
    folder = copied()
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": -4, "teacher/loc": 1.0}\n')
    run = the_run(folder)
    assert run.metrics.steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert run.missing == ["line 7 of metrics.jsonl is damaged"]
