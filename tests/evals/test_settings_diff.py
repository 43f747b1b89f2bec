"""Evaluations that were not generated or graded alike are told apart by what stands in their folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from populora.evals.folder import verdict_file
from populora.evals.records import EvalModel
from populora.evals.settings_diff import settings_diff, settings_of

BENCHMARK = {"items": 40, "template": "azr_math 1", "max_tokens": 16000, "stop": ["a"] * 50, "left_out": {}}
SETTINGS = {
    "base": {"path": "tiny", "dtype": "float32", "prompts": "azr"}, "backend": "inprocess", "merged": False,
    "models": {"T0": {"role": "teacher", "step": 1, "sha256": "x"}},
    "benchmarks": dict.fromkeys(("amc23", "gsm8k"), BENCHMARK),
}  # fmt: skip
FACTS = {"benchmark": "amc23", "data_sha256": "1", "versions": {"python": "3.11", "sympy": "1"}, "limits": {"cpu_seconds": 10}}
SOURCES = (EvalModel("T0", "teacher"), EvalModel("T1", "teacher"))


def made(folder: Path, generation: dict[str, Any] = SETTINGS, **facts: dict[str, Any]) -> dict[str, Any]:
    """The conditions of a folder; ``facts`` by source, on AMC23."""
    folder.mkdir()
    (folder / "evaluation.json").write_text(json.dumps({"settings": generation}))
    for source, own in facts.items():
        file = verdict_file(folder, "amc23", source).with_suffix(".json")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"facts": own}))
    return settings_of(folder, SOURCES, ["amc23", "gsm8k"])


def test_what_was_made_alike_needs_no_note(tmp_path: Path):
    other = {**SETTINGS, "models": {"S0": {"role": "student", "step": 2, "sha256": "y"}}}
    assert settings_diff({"a": made(tmp_path / "a", T0=FACTS, T1=FACTS), "b": made(tmp_path / "b", other, T0=FACTS)}) == []


def test_each_setting_of_generation_that_differs_is_a_note(tmp_path: Path):
    benchmarks = {
        name: {**own, "max_tokens": 512, "stop": ["a"] * 51, "left_out": {"7": "too_long"}} for name, own in SETTINGS["benchmarks"].items()
    }
    other = {"base": {"path": "tiny", "dtype": "bfloat16"}, "backend": "inprocess", "merged": True, "models": {}, "benchmarks": benchmarks}
    found = settings_diff({"a": made(tmp_path / "a"), "b": made(tmp_path / "b", other)})
    stops = next(note for note in found if "stop" in note)
    assert set(found) - {stops} == {
        "Different settings: base dtype is float32 (a); bfloat16 (b).",
        "Different settings: base prompts is azr (a); not recorded (b).",
        "Different settings: merged is False (a); True (b).",
        "Different settings: max_tokens is 16000 (a); 512 (b), on AMC, GSM.",
        "Different settings: left_out is 0 items (a); 1 items (b), on AMC, GSM.",
    }
    assert len(stops) < 250 and "…" in stops  # they differ beyond what is shown


def test_other_graders_and_data_are_told_also_within_one_evaluation(tmp_path: Path):
    newer = {**FACTS, "data_sha256": "2", "versions": {"python": "3.11", "sympy": "2"}}
    (data, version) = settings_diff({"a": made(tmp_path / "a", T0=FACTS), "b": made(tmp_path / "b", T0=newer)})
    assert data == "Different settings: graders' data_sha256 is 1 (a); 2 (b), on AMC."
    assert version == "Different settings: graders' versions sympy is 1 (a); 2 (b), on AMC."
    alone = settings_diff({"": made(tmp_path / "c", T0=FACTS, T1={**FACTS, "versions": {"python": "3.12", "sympy": "1"}})})
    assert alone == ["Different settings: graders' versions python is 3.11 and 3.12, on AMC."]


def test_a_benchmark_that_only_one_has_is_not_a_difference(tmp_path: Path):
    less = {**SETTINGS, "benchmarks": {"gsm8k": SETTINGS["benchmarks"]["gsm8k"]}}
    assert settings_diff({"a": made(tmp_path / "a", T0=FACTS), "b": made(tmp_path / "b", less)}) == []
