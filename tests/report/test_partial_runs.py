"""A run that is going on, empty, or of another version is reported as far as it goes."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from report_runs import CONFIG, rewrite, study_of, the_run, write_run

from populora.report.catalogue import figures_of
from populora.report.figure import Absent
from populora.report.page import page
from populora.runs.directory import new_run
from populora.runs.records import SCHEMAS

OTHER = '{"population": {"teachers": "x"}, "selfplay": 4, "base": "b", "league": [], "steps": "many", "seed": {}}'


@pytest.mark.parametrize("content", [None, "", "[]", "7", "{", '{"versions": {"populora": "0"}, "unknown": 1}', '{"versions": 3}'])
def test_a_run_without_its_facts_is_reported(copied, content: str | None):
    folder = copied()
    (folder / "run.json").unlink()
    if content is not None:
        (folder / "run.json").write_text(content)
    text = page(study_of(folder), [])
    assert ("run.json cannot be read" in text) == (content is None or not content.startswith(("[]", '{"')))


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "{", "[3]", "{}", '{"population": 4}', '{"population": {"tutors": 3}, "selfplay": {}}', OTHER])
def test_settings_that_cannot_be_read_leave_the_figures_that_need_none(copied, content: str, reported):
    for name in ("pair", "agent") if content in ("", OTHER) else ("pair",):
        folder = copied(name)
        (folder / "config.json").write_text(content)
        text = reported(folder)
        assert 'id="dynamics"' in text and 'id="dynamics" class="absent"' not in text
        assert ("config.json cannot be read" in text) == (content in ("", "{", "[3]"))


def test_settings_of_another_version_are_read_as_they_are(copied, reported):
    folder = copied()
    settings = json.loads((folder / "config.json").read_text())
    settings |= {"holodeck": {"enabled": True}, "population": {**settings["population"], "judges": 2}}
    (folder / "config.json").write_text(json.dumps(settings))
    study = study_of(folder)
    assert [arm.label for arm in study.arms] == ["2T+2S"] and study.missing == []
    assert reported(folder)


def test_a_run_with_no_finished_step_is_reported(tmp_path: Path, reported):
    with new_run(tmp_path / "run", CONFIG, {}):
        pass
    study = study_of(tmp_path / "run")
    figures = figures_of(study)
    assert all(isinstance(figure, Absent) for figure in figures)
    text = page(study, figures)
    assert "metrics.jsonl is not there" in text and "0 of 6" in text


def test_a_run_with_no_finished_step_stands_beside_one_that_has_some(tmp_path: Path, runs, reported):
    with new_run(tmp_path / "empty", replace(CONFIG, seed=9), {}), new_run(tmp_path / "other", replace(CONFIG, seed=8, steps=9), {}):
        pass
    (tmp_path / "other" / "config.json").write_text((tmp_path / "other" / "config.json").read_text().replace('"lora"', '"renamed"'))
    assert "metrics.jsonl is not there" in reported(tmp_path / "empty", runs["pair"], baselines=(runs["agent"],))
    assert "metrics.jsonl is not there" in reported(tmp_path / "other", baselines=(runs["agent"],))
    assert "metrics.jsonl is not there" in reported(runs["pair"], baselines=(tmp_path / "other",))


def test_what_a_run_is_writing_just_now_is_no_step_of_it(copied, reported):
    folder = copied()
    os.rename(folder / "steps" / "step_00006", folder / "steps" / "step_00006.part")
    for name in ("metrics.jsonl", "timings.jsonl"):
        whole = (folder / name).read_bytes().splitlines(keepends=True)
        (folder / name).write_bytes(b"".join(whole[:-1]) + whole[-1][:30])
    run = the_run(folder)
    assert run.recorded == run.metrics.steps.tolist() == run.timings.steps.tolist() == [1, 2, 3, 4, 5] and run.missing == []
    assert "5 of 6" in reported(folder)


def test_one_step_is_enough(tmp_path: Path, make_record, reported):
    folder = write_run(tmp_path / "run", make_record, steps=1)
    assert "1 of 6" in reported(folder)


def test_steps_without_tables_are_named(copied, reported):
    folder = copied()
    shutil.rmtree(folder / "steps" / "step_00004")
    run = the_run(folder)
    assert run.metrics.steps.tolist() == [1, 2, 3, 4, 5, 6] and any("no tables" in note and "step 4" in note for note in run.missing)
    shutil.rmtree(folder / "steps")
    assert "steps/ has no tables of steps that metrics.jsonl has (6 of the steps 1 to 6)" in reported(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMAS)
def test_every_column_may_be_absent_and_the_page_says_so(copied, name: str):
    """One column after the other is dropped from all steps: figures that need it go without, none fails."""
    study_columns = [column for column in SCHEMAS[name].names if column != "stream"]
    folder = copied()
    whole = {step: pq.ParquetFile(folder / "steps" / f"step_{step:05d}" / f"{name}.parquet").read() for step in range(1, 7)}
    for column in study_columns:
        for step, original in whole.items():
            rewrite(folder, name, step, lambda _, original=original, column=column: original.drop_columns([column]))
        run = the_run(folder)
        rest = next(one for one in SCHEMAS[name].names if one != column)
        found = run.table(name, (rest, column))
        note = f"{name}.parquet has no column '{column}': another version wrote it (6 of the steps 1 to 6)"
        assert note in run.missing
        assert len(found) == (sum(map(len, whole.values())) if column == "repeat" else 0)
        study = study_of(folder)
        for figure in figures_of(study):
            assert isinstance(figure, Absent) or figure.csv()
