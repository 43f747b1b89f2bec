"""Models are found by path or name, and refused with what was expected."""

import shutil
from dataclasses import replace

import pytest
import torch
from small_sources import CONFIG, advance, base_facts, change_settings

from populora.adapters.adapter import Adapter
from populora.adapters.peft_format import save_adapter
from populora.core.config import BaseConfig
from populora.core.errors import AdapterError, ConfigError, RunDirectoryError
from populora.engine.model.base_shape import read_base_shape
from populora.engine.model.loading import base_folder
from populora.evals.eval_records import EvalModel
from populora.evals.loaded_adapters import load_adapters, open_loaded, read_checked
from populora.evals.models import find_models


def test_the_members_of_a_run_are_those_of_its_newest_checkpoint_with_its_settings(run):
    models = find_models([str(run)])
    assert [(model.name, model.role) for model in models.models] == [("T0", "teacher"), ("S0", "student"), ("S1", "student")]
    assert models.models[1] == EvalModel("S0", "student", run / "checkpoints" / "step_00002" / "adapters" / "S0", 2)
    assert models.config == CONFIG and (models.run, models.step, len(models.run_id)) == (run, 2, 64)


def test_the_members_of_an_earlier_step_are_those_of_its_checkpoint(run):
    advance(run, CONFIG, 4)
    models = find_models([str(run)], step=2)
    assert models.step == 2 and models.models[0].adapter == run / "checkpoints" / "step_00002" / "adapters" / "T0"
    assert find_models([str(run)]).step == 4
    with pytest.raises(RunDirectoryError, match="has no checkpoint of step 3, but of 2, 4: a run keeps more with keep_checkpoints_every"):
        find_models([str(run)], step=3)


def test_members_and_the_bare_base_are_selected_by_name(run):
    assert [(model.name, model.role) for model in find_models([str(run)], "S1, T0,base").models] == [
        ("S1", "student"), ("T0", "teacher"), ("base", "base"),
    ]  # fmt: skip
    assert [model.name for model in find_models([str(run)], "base, all").models] == ["base", "T0", "S0", "S1"]
    with pytest.raises(ConfigError, match="has no member 'S7': expected 'all', or some of T0, S0, S1 and 'base'"):
        find_models([str(run)], "T0,S7")
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(RunDirectoryError, match="has no checkpoint"):
        find_models([str(run)])


def test_an_adapter_is_found_with_the_base_that_it_names(make_adapter, chat_base):
    mine = make_adapter("mine", 1, str(chat_base))
    models = find_models([str(mine)])
    assert models.models == (EvalModel("mine", "adapter", mine),) and models.config.base == BaseConfig(path=str(chat_base), prompts="azr")
    assert find_models([str(mine)], base="other/base").config.base.path == "other/base"
    change_settings(mine, base_model_name_or_path=str(base_folder(BaseConfig(path="tiny"))))
    config = find_models([str(mine)]).config
    assert (config.base.path, config.base.prompts, config.selfplay.max_response_tokens) == ("tiny", "compact", 224)


def test_a_name_that_is_no_model_is_refused(tmp_path, make_adapter):
    nameless = make_adapter("nameless", 1)
    change_settings(nameless, base_model_name_or_path=None)
    moved = [make_adapter(folder, 1) for folder in ("tiny_sql_base", "other")]
    for adapter in moved:
        change_settings(adapter, base_model_name_or_path=f"/elsewhere/{adapter.name}")
    (tmp_path / "runs" / "tiny").mkdir(parents=True)
    for names, options, error, message in (
        (["runs"], {}, ConfigError, r"expected a run, a PEFT adapter, or a base.*it has none of run.json, adapter_config.json and"),
        (["runs/tinny"], {}, ConfigError, "it is no folder"),  # and no name on the hub
        ([], {}, ConfigError, "nothing to evaluate"),
        (["tiny"], {"members": "S1"}, ConfigError, "members are 'S1', but 'tiny' is no run"),
        (["tiny"], {"step": 2}, ConfigError, "the step is 2, but 'tiny' is no run"),
        (["tiny"], {"base": "other/base"}, ConfigError, "'tiny' is a base itself"),
        ([str(nameless)], {}, AdapterError, r"names no base.*--base"),
        ([str(moved[0])], {}, AdapterError, r"'/elsewhere/.*', which is not on this machine: give it by --base tiny_sql$"),
        ([str(moved[1])], {}, AdapterError, r"not on this machine: give it by --base FOLDER$"),
    ):
        with pytest.raises(error, match=message):
            find_models(names, **options)


def test_models_of_one_evaluation_have_one_base_one_run_and_different_names(run, make_adapter, chat_base, tmp_path):
    mine = make_adapter("mine", 1)
    models = find_models([str(mine), str(run)], "S0")
    assert [model.name for model in models.models] == ["mine", "S0"] and models.config == CONFIG
    with pytest.raises(AdapterError, match=f"expected models of one base, but '{chat_base}' has '{chat_base}' instead of 'tiny'"):
        find_models([str(mine), "tiny", str(chat_base)])
    with pytest.raises(AdapterError, match=f"but '{mine}' has 'tiny' instead of '{chat_base}'"):  # a base that is named itself decides
        find_models([str(mine), str(chat_base)])
    with pytest.raises(ConfigError, match="two of the models are called 'mine'"):
        find_models([str(mine), str(mine)])
    with pytest.raises(ConfigError, match="expected one run"):
        find_models([str(run), str(run)])


def test_the_engine_refuses_another_base_than_the_runs(run, tmp_path, chat_base):
    assert find_models([str(run)]).base_sha256 == base_facts()["base_sha256"]
    models = find_models([str(run)], "base", str(chat_base))
    loaded = load_adapters([], read_base_shape(models.config.base))
    with (
        pytest.raises(ConfigError, match=f"'{chat_base}' is not the base of the run: expected weights of SHA-256 "),
        open_loaded(loaded.config(models.config, 16, 16), loaded, models.base_sha256),
    ):
        pass
    other = replace(models, config=replace(models.config, base=replace(models.config.base, dtype="bfloat16")))
    assert other.base_sha256 == ""  # the fingerprint is of the run's precision


def test_an_adapter_for_another_base_is_named_with_what_was_expected(make_adapter, chat_base, tmp_path):
    folder, tiny = make_adapter("other", 1, str(chat_base)), read_base_shape(BaseConfig())
    with pytest.raises(AdapterError, match=rf"'{folder}' is an adapter for another base.*q_proj' has \(in, out\) = \(32, 32\).*'tiny' has"):
        read_checked(folder, tiny)
    deep = Adapter({"model.layers.9.mlp.up_proj": (torch.ones(1, 128), torch.ones(512, 1))}, 1, 1.0)
    save_adapter(deep, tmp_path / "deep", "tiny", ("up_proj",))
    with pytest.raises(AdapterError, match=r"'model.layers.9.mlp.up_proj'.*has no such linear module, its 28 are in 4 layers"):
        read_checked(tmp_path / "deep", tiny)


def test_adapters_that_are_no_plain_lora_are_left_to_merging(make_adapter):
    folder = make_adapter("scaled", 1)
    change_settings(folder, use_rslora=True)
    with pytest.raises(AdapterError, match=r"'.*scaled' has use_rslora = True.*--merge"):
        load_adapters([folder], read_base_shape(BaseConfig()))
