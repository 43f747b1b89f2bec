"""A run directory read from Python: tables, lineage and members, against the files themselves."""

import json

import pytest

from populora.core.errors import RunDirectoryError
from populora.runs.reader import load_run


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(RunDirectoryError, match="is not a run directory"):
        load_run(tmp_path)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text('{"population": {}}')
    return tmp_path


def test_a_metric_that_a_step_lacks_is_null(folder):
    lines = [{"step": 1, "a": 0.5}, {"step": 2, "b": 1.5}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert load_run(folder).metrics.to_pydict() == {"step": [1, 2], "a": [0.5, None], "b": [None, 1.5]}


def test_what_a_run_does_not_have_is_named_and_its_log_is_empty(folder):
    run = load_run(folder)
    assert run.metrics["step"].to_pylist() == []
    with pytest.raises(RunDirectoryError, match="no table 'answers': expected one of proposals, problems, attempts"):
        run.table("answers")
    with pytest.raises(RunDirectoryError, match="no checkpoint"):
        _ = run.members


def test_a_run_with_settings_of_another_version_is_refused_in_one_sentence(folder):
    (folder / "config.json").write_text('{"population": {}, "engine": {"beam_width": 3}}')
    with pytest.raises(RunDirectoryError, match=r"was written by another version of populora \(unknown setting 'engine.beam_width'"):
        load_run(folder)
