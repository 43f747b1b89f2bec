"""The report's benchmark: its larger run is four times the given one, and it counts values that do not come out of the tables again."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest
from report_runs import write_run

FILE = Path(__file__).parents[2] / "benchmarks" / "page" / "run.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """The benchmark as a module."""
    spec = importlib.util.spec_from_file_location("page_benchmark", FILE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(tmp_path: Path, make_record) -> Path:
    """A small run, written without training."""
    return write_run(tmp_path / "run", make_record, steps=3)


def ids(run: Path, table: str) -> list[list[str]]:
    """The problems' ids in each of a run's files."""
    return [pq.ParquetFile(file).read()["problem_id"].to_pylist() for file in sorted((run / "steps").glob(f"*/{table}.parquet"))]


def test_the_larger_run_has_every_row_four_times_and_no_problem_twice(bench, run, tmp_path):
    large = bench.larger(run, tmp_path / "large")
    before, after = bench.counts(run), bench.counts(large)
    assert after == {"steps": 3, "proposals": 4 * before["proposals"], "attempts": 4 * before["attempts"]}
    for small, own in zip(ids(run, "problems"), ids(large, "problems"), strict=True):
        assert len(set(own)) == len(own) == 4 * len(small) and set(small) <= set(own)


def test_a_value_that_does_not_come_out_again_is_counted(bench, run, tmp_path):
    assert bench.computed_again(run, tmp_path / "again")["values_that_differ"] == 0
    log = run / "metrics.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines[1]["student/solve_rate"] += 0.25
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = bench.computed_again(run, tmp_path / "changed")
    assert found["values_that_differ"] == 1 and found["values"] > 100


def test_a_browser_that_is_not_there_is_said_to_be_missing(bench, tmp_path):
    assert bench.ready(tmp_path / "page.html", "").startswith("not measured: ")
