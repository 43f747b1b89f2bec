"""The folder of an evaluation: copies of adapters, settings that may not differ, and notes on those that do between folders."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_sources import CONFIG, advance, running

from populora.core.errors import ConfigError, RunDirectoryError
from populora.evals.eval_records import EvalModel
from populora.evals.folder import (
    read_description,
    read_evaluation,
    read_models,
    settings_diff,
    settings_of,
    snapshot_adapters,
    update_evaluation,
    verdict_file,
)
from populora.evals.models import find_models


@pytest.fixture(autouse=True)
def begun(out) -> None:
    update_evaluation(out, {})


def snapshot(name: Path, out: Path, members: str = "all"):
    models = find_models([str(name)], members)
    return snapshot_adapters(models.models, out, models.run_id)


def weights(folder: Path) -> bytes:
    return (folder / "adapter_model.safetensors").read_bytes()


def test_adapters_are_kept_as_they_were_while_their_run_trains_on(run, out):
    (model,) = snapshot(run, out, "S0")
    before = weights(out / "adapters" / "S0")
    assert model.adapter == out / "adapters" / "S0" and before == weights(run / "adapters" / "S0")
    advance(run, CONFIG, 4)
    (model,) = snapshot(run, out, "S0")
    assert model.step == 2 and weights(out / "adapters" / "S0") == before != weights(run / "adapters" / "S0")
    assert [(model.name, model.role, model.step) for model in read_models(out)] == [("S0", "student", 2)]


def test_members_of_different_steps_or_runs_are_not_put_together(run, out, tmp_path):
    snapshot(run, out, "T0,S0")
    advance(run, CONFIG, 4)
    with pytest.raises(ConfigError, match=rf"'{out}' has members at step 2 of the run, which is at step 4 now.*into a new folder"):
        snapshot(run, out)
    with (
        running(tmp_path / "other", replace(CONFIG, seed=5), 2) as other,
        pytest.raises(ConfigError, match=r"has an evaluation with models.S0.run '\w+', and this one has"),
    ):
        snapshot(other, out, "S0")
    assert [model.name for model in read_models(out)] == ["T0", "S0"]


def test_another_adapter_under_a_recorded_name_is_refused_and_half_a_copy_is_made_again(out, make_adapter):
    mine = make_adapter("mine", 1)
    (out / "adapters" / "mine").mkdir(parents=True)
    (out / "adapters" / "mine" / "adapter_model.safetensors").write_bytes(b"left by a kill")
    snapshot(mine, out)
    before = weights(out / "adapters" / "mine")
    assert before == weights(mine)
    with pytest.raises(ConfigError, match=r"has an evaluation with models.mine.sha256 '\w+', and this one has .*choose another folder"):
        snapshot(make_adapter("mine", 2, folder=out.parent / "elsewhere"), out)
    assert weights(out / "adapters" / "mine") == before


def test_settings_may_be_added_but_not_changed(out):
    update_evaluation(out, {"merged": False, "benchmarks": {"amc23": {"items": 40}}}, skipped={})
    update_evaluation(out, {"benchmarks": {"gsm8k": {"items": 1319}}}, skipped={"aime24": "not there"})
    before = (out / "evaluation.json").read_bytes()
    description = read_description(out)
    assert description["skipped"] == {"aime24": "not there"} and list(description["settings"]["benchmarks"]) == ["amc23", "gsm8k"]
    with pytest.raises(ConfigError, match=r"'.*out' has an evaluation with benchmarks.amc23.items 40, and this one has 41: use the same"):
        update_evaluation(out, {"merged": False, "benchmarks": {"amc23": {"items": 41}}})
    assert (out / "evaluation.json").read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [
        {},
        [],
        {"settings": {"models": {}}},
        {"settings": {"models": {"T0": {"step": 1}}, "benchmarks": {}}},
        {"settings": {"models": {}, "benchmarks": {"amc23": {"template": "azr_math 1"}}}},
        {"settings": {"models": {}, "benchmarks": {"unknown": {"items": 40}}}},
    ],
)
def test_an_incomplete_description_is_named_with_what_was_expected(out, content):
    (out / "evaluation.json").write_text(json.dumps(content))
    for read in (read_evaluation, read_models, lambda folder: update_evaluation(folder, {})):
        with pytest.raises(RunDirectoryError, match=rf"'{out}/evaluation.json' is incomplete: expected settings with the role .* --out"):
            read(out)


BENCHMARK = {"items": 40, "template": "azr_math 1", "max_tokens": 16000, "stop": ["a"] * 50, "left_out": {}}
SETTINGS = {
    "base": {"path": "tiny", "dtype": "float32", "prompts": "azr"}, "backend": "inprocess", "merged": False,
    "models": {"T0": {"role": "teacher", "step": 1, "sha256": "x"}},
    "benchmarks": dict.fromkeys(("amc23", "gsm8k"), BENCHMARK),
}  # fmt: skip
FACTS = {"benchmark": "amc23", "data_sha256": "1", "versions": {"python": "3.11", "sympy": "1"}, "limits": {"cpu_seconds": 10}}


def settings(folder: Path, generation: dict[str, Any] = SETTINGS, **facts: dict[str, Any]) -> dict[str, Any]:
    """The settings of a folder with these facts of graders, by model, on AMC23."""
    folder.mkdir()
    (folder / "evaluation.json").write_text(json.dumps({"settings": generation}))
    for model, of_model in facts.items():
        file = verdict_file(folder, "amc23", model).with_suffix(".json")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"facts": of_model}))
    return settings_of(folder, (EvalModel("T0", "teacher"), EvalModel("T1", "teacher")), ["amc23", "gsm8k"])


def test_equal_settings_and_benchmarks_of_one_folder_alone_need_no_note(tmp_path: Path):
    ours = settings(tmp_path / "a", T0=FACTS, T1=FACTS)
    other = {**SETTINGS, "models": {"S0": {"role": "student", "step": 2, "sha256": "y"}}}
    assert settings_diff({"a": ours, "b": settings(tmp_path / "b", other, T0=FACTS)}) == []
    less = {**SETTINGS, "benchmarks": {"gsm8k": SETTINGS["benchmarks"]["gsm8k"]}}
    assert settings_diff({"a": ours, "b": settings(tmp_path / "c", less)}) == []


def test_each_setting_of_generation_that_differs_is_a_note(tmp_path: Path):
    changes = {"max_tokens": 512, "stop": ["a"] * 51, "left_out": {"7": "too_long"}}
    benchmarks = {name: {**facts, **changes} for name, facts in SETTINGS["benchmarks"].items()}
    other = {"base": {"path": "tiny", "dtype": "bfloat16"}, "backend": "inprocess", "merged": True, "models": {}, "benchmarks": benchmarks}
    notes = settings_diff({"a": settings(tmp_path / "a"), "b": settings(tmp_path / "b", other)})
    stops = next(note for note in notes if "stop" in note)
    assert set(notes) - {stops} == {
        "Different settings: base dtype is float32 (a); bfloat16 (b).",
        "Different settings: base prompts is azr (a); not recorded (b).",
        "Different settings: merged is False (a); True (b).",
        "Different settings: max_tokens is 16000 (a); 512 (b), on AMC, GSM.",
        "Different settings: left_out is 0 items (a); 1 items (b), on AMC, GSM.",
    }
    assert len(stops) < 250 and "…" in stops  # they differ beyond the part that is printed


def test_different_graders_and_data_are_notes_also_within_one_evaluation(tmp_path: Path):
    newer = {**FACTS, "data_sha256": "2", "versions": {"python": "3.11", "sympy": "2"}}
    (data, version) = settings_diff({"a": settings(tmp_path / "a", T0=FACTS), "b": settings(tmp_path / "b", T0=newer)})
    assert data == "Different settings: graders' data_sha256 is 1 (a); 2 (b), on AMC."
    assert version == "Different settings: graders' versions sympy is 1 (a); 2 (b), on AMC."
    alone = settings_diff({"": settings(tmp_path / "c", T0=FACTS, T1={**FACTS, "versions": {"python": "3.12", "sympy": "1"}})})
    assert alone == ["Different settings: graders' versions python is 3.11 and 3.12, on AMC."]
