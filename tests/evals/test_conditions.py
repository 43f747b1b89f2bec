"""Evaluations that were not generated or graded alike are told apart by what stands in their folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from populora.evals.conditions import conditions, differences
from populora.evals.results import Source, verdict_file

ASKED = {"template": "azr_math 1", "max_tokens": 16000, "stop": ["a"] * 50, "left_out": {}}
GENERATION = {
    "base": {"path": "tiny", "dtype": "float32", "prompts": "azr"}, "backend": "inprocess", "merged": False,
    "sources": {"T0": {"step": 1, "sha256": "x"}},
    "benchmarks": dict.fromkeys(("amc23", "gsm8k"), ASKED),
}  # fmt: skip
FACTS = {"benchmark": "amc23", "data_sha256": "1", "versions": {"python": "3.11", "sympy": "1"}, "limits": {"cpu_seconds": 10}}
SOURCES = (Source("T0", "teacher"), Source("T1", "teacher"))


def made(folder: Path, generation: dict[str, Any] = GENERATION, **facts: dict[str, Any]) -> dict[str, Any]:
    """The conditions of a folder; ``facts`` by source, on AMC23."""
    folder.mkdir()
    (folder / "generation.json").write_text(json.dumps(generation))
    for source, own in facts.items():
        file = verdict_file(folder, "amc23", source).with_suffix(".json")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"facts": own}))
    return conditions(folder, SOURCES, ["amc23", "gsm8k"])


def test_what_was_made_alike_needs_no_note(tmp_path: Path):
    other = {**GENERATION, "sources": {"S0": {"step": 2, "sha256": "y"}}}
    assert differences({"a": made(tmp_path / "a", T0=FACTS, T1=FACTS), "b": made(tmp_path / "b", other, T0=FACTS)}) == []


def test_each_setting_of_generation_that_differs_is_a_note(tmp_path: Path):
    benchmarks = {
        name: {**own, "max_tokens": 512, "stop": ["a"] * 51, "left_out": {"7": "too_long"}}
        for name, own in GENERATION["benchmarks"].items()
    }
    other = {"base": {"path": "tiny", "dtype": "bfloat16"}, "backend": "inprocess", "merged": True, "benchmarks": benchmarks}
    found = differences({"a": made(tmp_path / "a"), "b": made(tmp_path / "b", other)})
    stops = next(note for note in found if "stop" in note)
    assert set(found) - {stops} == {
        "Not made alike: base dtype is float32 (a); bfloat16 (b).",
        "Not made alike: base prompts is azr (a); not recorded (b).",
        "Not made alike: merged is False (a); True (b).",
        "Not made alike: max_tokens is 16000 (a); 512 (b), on AMC, GSM.",
        "Not made alike: left_out is 0 items (a); 1 items (b), on AMC, GSM.",
    }
    assert len(stops) < 250 and "…" in stops  # they differ beyond what is shown


def test_other_graders_and_data_are_told_also_within_one_evaluation(tmp_path: Path):
    newer = {**FACTS, "data_sha256": "2", "versions": {"python": "3.11", "sympy": "2"}}
    (data, version) = differences({"a": made(tmp_path / "a", T0=FACTS), "b": made(tmp_path / "b", T0=newer)})
    assert data == "Not made alike: graders' data_sha256 is 1 (a); 2 (b), on AMC."
    assert version == "Not made alike: graders' versions sympy is 1 (a); 2 (b), on AMC."
    alone = differences({"": made(tmp_path / "c", T0=FACTS, T1={**FACTS, "versions": {"python": "3.12", "sympy": "1"}})})
    assert alone == ["Not made alike: graders' versions python is 3.11 and 3.12, on AMC."]


def test_a_benchmark_that_only_one_has_is_not_a_difference(tmp_path: Path):
    less = {**GENERATION, "benchmarks": {"gsm8k": GENERATION["benchmarks"]["gsm8k"]}}
    assert differences({"a": made(tmp_path / "a", T0=FACTS), "b": made(tmp_path / "b", less)}) == []
