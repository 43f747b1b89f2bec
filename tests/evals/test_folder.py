"""The folder of an evaluation: what it is of, copies of adapters, and settings that may not differ."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from small_sources import advance, running
from test_models import CONFIG

from populora.core.errors import ConfigError, RunDirectoryError
from populora.evals.folder import (
    check_folder,
    read_evaluation,
    read_models,
    read_settings,
    snapshot_adapters,
    update_evaluation,
    verdict_file,
)
from populora.evals.models import find_models
from populora.evals.records import Grade, append


@pytest.fixture
def out(tmp_path) -> Path:
    (tmp_path / "out").mkdir()
    update_evaluation(tmp_path / "out", {})
    return tmp_path / "out"


@pytest.fixture
def run(tmp_path):
    with running(tmp_path / "run", CONFIG, 2) as folder:
        yield folder


def snapshot(name: Path, out: Path, members: str = "all"):
    models = find_models([str(name)], members)
    return snapshot_adapters(models.models, out, models.run_id)


def weights(folder: Path) -> bytes:
    return (folder / "adapter_model.safetensors").read_bytes()


def test_adapters_are_kept_as_they_were_while_their_run_goes_on(run, out):
    (model,) = snapshot(run, out, "S0")
    before = weights(out / "adapters" / "S0")
    assert model.adapter == out / "adapters" / "S0" and before == weights(run / "adapters" / "S0")
    advance(run, CONFIG, 4)
    (model,) = snapshot(run, out, "S0")
    assert model.step == 2 and weights(out / "adapters" / "S0") == before != weights(run / "adapters" / "S0")
    assert [(one.name, one.role, one.step) for one in read_models(out)] == [("S0", "student", 2)]


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
    assert list(read_settings(out)["models"]) == ["T0", "S0"]


def test_another_adapter_under_a_known_name_is_refused_and_a_moved_one_is_not(out, make_adapter, tmp_path):
    snapshot(make_adapter("mine", 1), out)
    (tmp_path / "there").mkdir()
    snapshot((tmp_path / "mine").rename(tmp_path / "there" / "mine"), out)
    with pytest.raises(ConfigError, match=r"has an evaluation with models.mine.sha256 '\w+', and this one has .*choose another folder"):
        snapshot(make_adapter("mine", 2), out)
    assert weights(out / "adapters" / "mine") == weights(tmp_path / "there" / "mine")


def test_a_copy_that_a_kill_left_is_made_again(out, make_adapter):
    folder = make_adapter("mine", 1)
    (out / "adapters" / "mine").mkdir(parents=True)
    (out / "adapters" / "mine" / "adapter_model.safetensors").write_bytes(b"half")
    snapshot(folder, out)
    assert weights(out / "adapters" / "mine") == weights(folder)


def test_settings_may_be_added_but_not_changed(out):
    update_evaluation(out, {"merged": False, "benchmarks": {"amc23": {"items": 40}}}, skipped={})
    update_evaluation(out, {"benchmarks": {"gsm8k": {"items": 1319}}}, skipped={"aime24": "not there"})
    before = (out / "evaluation.json").read_bytes()
    assert json.loads(before)["skipped"] == {"aime24": "not there"} and list(read_settings(out)["benchmarks"]) == ["amc23", "gsm8k"]
    with pytest.raises(ConfigError, match=r"'.*out' has an evaluation with benchmarks.amc23.items 40, and this one has 41: use the same"):
        update_evaluation(out, {"merged": False, "benchmarks": {"amc23": {"items": 41}}})
    assert (out / "evaluation.json").read_bytes() == before


@pytest.mark.parametrize("name", ["run.json", "config.json", "adapters", "notes.txt"])
def test_a_folder_of_something_else_is_refused(tmp_path, name):
    folder = tmp_path / "folder"
    check_folder(folder)
    folder.mkdir()
    for harmless in ("lock", "evaluation.json.part"):
        (folder / harmless).touch()
    check_folder(folder)
    (folder / name).touch()
    with pytest.raises(ConfigError, match=rf"'{folder}' is not empty \(it has '{name}'\) and is not an evaluation"):
        check_folder(folder)
    (folder / "evaluation.json").touch()
    check_folder(folder)


def test_scores_are_read_with_ungraded_and_skipped_benchmarks(out):
    settings = {"models": {"T0": {"role": "teacher", "step": 3}, "base": {"role": "base"}}}
    update_evaluation(out, {**settings, "benchmarks": {"aime24": {"items": 30}, "gsm8k": {"items": 1319}}}, skipped={"amc23": "not there"})
    file = verdict_file(out, "aime24", "T0")
    file.parent.mkdir(parents=True)
    for grade in (Grade("a", True, modes={"strict": False, "lenient": True}), Grade("b", False, "wrong", modes={"strict": False})):
        append(file, grade)
    evaluation = read_evaluation(out)
    score = evaluation.scores_of("T0")["aime24"]
    assert (score.correct, score.graded, score.items, score.modes) == (1, 2, 30, {"strict": 0, "lenient": 1})
    assert (score.complete, score.rate, evaluation.name, evaluation.skipped) == (False, 50, "out", {"amc23": "not there"})
    assert evaluation.scores_of("base") == {} and len(evaluation.scores) == 4 and evaluation.models[0].step == 3


@pytest.mark.parametrize("broken", ["[]", '{"name": "x"}', '{"settings": {"models": {"a": {}}, "benchmarks": {}}}'])
def test_a_damaged_description_is_named(tmp_path, broken):
    with pytest.raises(ConfigError, match=r"is not an evaluation: expected 'evaluation.json' in it"):
        read_evaluation(tmp_path)
    (tmp_path / "evaluation.json").write_text(broken)
    with pytest.raises(ConfigError, match=r"evaluation.json' does not describe an evaluation"):
        read_evaluation(tmp_path)
    (tmp_path / "evaluation.json").write_text("{")
    with pytest.raises(RunDirectoryError, match=r"evaluation.json' is not valid JSON"):
        read_evaluation(tmp_path)
