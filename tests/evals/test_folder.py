"""What an evaluation is of, over several calls into one folder: nothing that was left out or that decided a completion is forgotten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from populora.core.errors import ConfigError
from populora.evals.folder import Data, Description, evaluation_of, read_description, write_description
from populora.evals.results import Source

DATA = {"amc23": Data("amc23.jsonl", "1", 40)}
THEN, NOW = {"versions": {"torch": "1"}}, {"versions": {"torch": "2"}}


def written(folder: Path, *calls: Description) -> Description:
    for one in calls:
        write_description(folder, one)
    return read_description(folder)


def test_what_was_skipped_is_kept_until_it_is_there(tmp_path: Path):
    first = Description("e", (Source("S0", "student"),), DATA, {"S1": "damaged", "S2": "damaged", "gsm8k": "not there"})
    second = Description("e", (Source("S1", "student"),), {"gsm8k": Data("gsm8k.jsonl", "2", 1319)}, {"aime24": "not there"})
    found = written(tmp_path, first, second)
    assert found.skipped == {"S2": "damaged", "aime24": "not there"}
    assert [source.name for source in found.sources] == ["S0", "S1"] and list(found.benchmarks) == ["amc23", "gsm8k"]
    assert evaluation_of(tmp_path).skipped == found.skipped


def test_a_source_that_is_skipped_later_is_told_though_it_was_there_before(tmp_path: Path):
    first = Description("e", (Source("S0", "student"), Source("S1", "student")), DATA)
    found = written(tmp_path, first, Description("e", (Source("S0", "student"),), DATA, {"S1": "damaged"}))
    assert found.skipped == {"S1": "damaged"} and len(found.sources) == 2


def test_each_set_of_versions_and_machines_is_kept_once(tmp_path: Path):
    one = (Source("S0", "student"),)
    calls = [Description("e", one, DATA, facts=[facts]) for facts in (THEN, NOW, THEN, NOW)]
    assert written(tmp_path, *calls).facts == [THEN, NOW]


def test_facts_of_another_form_are_named(tmp_path: Path):
    written(tmp_path, Description("e", (Source("S0", "student"),), DATA, facts=[THEN]))
    values = json.loads((tmp_path / "evaluation.json").read_text())
    (tmp_path / "evaluation.json").write_text(json.dumps({**values, "facts": THEN}))
    with pytest.raises(ConfigError, match="does not describe an evaluation"):
        read_description(tmp_path)


def test_steps_are_those_of_generation(tmp_path: Path):
    written(tmp_path, Description("e", (Source("S0", "student"), Source("base", "base")), DATA))
    assert evaluation_of(tmp_path).steps == {}
    sources = {"S0": {"role": "student", "step": 200}, "base": {"role": "base"}}
    (tmp_path / "generation.json").write_text(json.dumps({"sources": sources}))
    assert evaluation_of(tmp_path).steps == {"S0": 200}
