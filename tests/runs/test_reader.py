"""A run directory read from Python: tables, lineage and members, against the files themselves."""

import json

import pytest

from populora.core.errors import RunDirectoryError
from populora.runs.reader import load_run


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(RunDirectoryError, match="is not a run directory"):
        load_run(tmp_path)


def test_a_metric_that_a_step_lacks_is_null(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    lines = [{"step": 1, "a": 0.5}, {"step": 2, "b": 1.5}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    metrics = load_run(tmp_path).metrics
    assert metrics.to_pydict() == {"step": [1, 2], "a": [0.5, None], "b": [None, 1.5]}


def test_a_run_without_a_step_has_an_empty_log(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert load_run(tmp_path).metrics["step"].to_pylist() == []


def test_a_run_with_settings_of_another_version_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "config.json").write_text('{"engine": {"beam_width": 3}}')
    with pytest.raises(RunDirectoryError, match=r"was written by another version of populora \(unknown setting 'engine.beam_width'"):
        load_run(tmp_path)


def test_an_unknown_table_is_refused_with_the_names_of_all(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RunDirectoryError, match="no table 'answers': expected one of proposals, problems, attempts"):
        load_run(tmp_path).table("answers")


def test_a_run_without_a_checkpoint_has_no_members_yet(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RunDirectoryError, match="no checkpoint"):
        _ = load_run(tmp_path).members
