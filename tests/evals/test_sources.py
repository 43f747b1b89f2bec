"""What is evaluated: found by path or name, kept as it was, and refused with what was expected."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_sources import advance, logged, running

from populora.config import BaseConfig, ClusterConfig, Config, LoraConfig, PopulationConfig
from populora.engine.shapes import base_shapes
from populora.errors import AdapterError, ConfigError, RunDirectoryError
from populora.evals import pinning
from populora.evals.pinning import pin, steps
from populora.evals.serving import read_fitting, serve
from populora.evals.sources import Source, find_sources
from populora.lora.adapter import Adapter
from populora.lora.peft_format import save_adapter
from populora.runlog.directory import new_run

CONFIG = Config(steps=4, checkpoint_every=2, lora=LoraConfig(rank=4, alpha=8.0), population=PopulationConfig(teachers=1, students=2))


@pytest.fixture
def run(tmp_path) -> Iterator[Path]:
    """After step 2, and still going on."""
    with running(tmp_path / "run", CONFIG, 2) as folder:
        yield folder


@pytest.fixture
def out(tmp_path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_the_members_of_a_run_have_their_roles_and_their_runs_settings(run):
    found = find_sources([str(run)])
    assert [(source.name, source.role) for source in found.each] == [("T0", "teacher"), ("S0", "student"), ("S1", "student")]
    assert found.config == CONFIG and found.each[1].adapter == run / "adapters" / "S0"


def test_members_and_the_bare_base_are_chosen_by_name(run):
    found = find_sources([str(run)], "S1, T0,base")
    assert [(source.name, source.role) for source in found.each] == [("S1", "student"), ("T0", "teacher"), ("base", "base")]
    assert [source.name for source in find_sources([str(run)], "base, all").each] == ["base", "T0", "S0", "S1"]
    with pytest.raises(ConfigError, match="has no member 'S7': expected 'all', or some of T0, S0, S1 and 'base'"):
        find_sources([str(run)], "T0,S7")
    shutil.rmtree(run / "adapters" / "S1")
    with pytest.raises(RunDirectoryError, match="no adapter of 'S1' yet"):
        find_sources([str(run)])


def test_an_adapter_is_found_with_the_base_that_it_names(make_adapter, chat_base):
    found = find_sources([str(make_adapter("mine", 1, str(chat_base)))])
    assert found.each == (Source("mine", "adapter", found.each[0].adapter),)
    assert found.config.base == BaseConfig(path=str(chat_base), prompts="azr")
    assert find_sources([str(make_adapter("mine", 1))], base="other/base").config.base.path == "other/base"


def test_an_exported_adapter_of_the_tiny_base_is_for_tiny(make_adapter):
    folder = make_adapter("exported", 1)
    settings = json.loads((folder / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = str(Path(pinning.__file__).parents[1] / "base" / "tiny")
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    config = find_sources([str(folder)]).config
    assert (config.base.path, config.base.prompts, config.selfplay.max_response_tokens) == ("tiny", "compact", 224)


def test_bases_are_found_by_name_and_folder(chat_base):
    for what in ("tiny", str(chat_base), "Some/Model-7B"):
        found = find_sources([what])
        assert found.each == (Source("base", "base"),) and found.config.base.path == what


def test_what_is_no_source_is_refused(tmp_path, make_adapter):
    with pytest.raises(ConfigError, match=r"expected a run, a PEFT adapter, or a base.*it has none of run.json, adapter_config.json and"):
        find_sources([str(tmp_path)])
    with pytest.raises(ConfigError, match="it is no folder"):
        find_sources([str(tmp_path / "typo")])
    with pytest.raises(ConfigError, match="nothing to evaluate"):
        find_sources([])
    with pytest.raises(ConfigError, match="members are 'S1', but 'tiny' is no run"):
        find_sources(["tiny"], "S1")
    with pytest.raises(ConfigError, match="'tiny' is a base itself"):
        find_sources(["tiny"], base="tiny")
    folder = make_adapter("nameless", 1)
    settings = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(settings | {"base_model_name_or_path": None}))
    with pytest.raises(AdapterError, match=r"names no base.*--base"):
        find_sources([str(folder)])


def test_sources_of_one_evaluation_have_one_base_and_different_names(run, make_adapter, chat_base):
    mine = make_adapter("mine", 1)
    found = find_sources([str(mine), str(run)], "S0")
    assert [source.name for source in found.each] == ["mine", "S0"] and found.config == CONFIG
    with pytest.raises(AdapterError, match=f"expected sources of one base, but '{chat_base}' is of '{chat_base}' and 'tiny' of 'tiny'"):
        find_sources([str(mine), "tiny", str(chat_base)])
    with pytest.raises(ConfigError, match="two of the sources are called 'mine'"):
        find_sources([str(mine), str(mine)])


def test_adapters_that_do_not_belong_to_the_others_are_left_out_with_the_reason(run, make_adapter, chat_base):
    mine, other, broken = make_adapter("mine", 1), make_adapter("other", 1, str(chat_base)), make_adapter("broken", 1)
    (broken / "adapter_config.json").write_text("{")
    for whats, kept in (
        ([mine, other, broken], ["mine"]),
        ([other, broken, "tiny", mine], ["base", "mine"]),  # what is named by itself is the base
        ([other, broken, run], ["T0", "S0", "S1"]),  # a run's first of all
    ):
        found = find_sources([str(what) for what in whats])
        assert [source.name for source in found.each] == kept and set(found.unfit) == {"other", "broken"}
        leader = mine if whats[0] == mine else whats[2]
        assert f"'{other}' is of '{chat_base}' and '{leader}' of 'tiny': evaluate them apart" in found.unfit["other"]
        assert "adapter_config.json" in found.unfit["broken"] and found.config.base.path == "tiny"
    found = find_sources([str(other), str(mine)])
    assert [source.name for source in found.each] == ["other"] and list(found.unfit) == ["mine"]
    with pytest.raises(AdapterError, match=r"adapter_config.json"):
        find_sources([str(broken)])


def test_a_run_of_many_processes_is_evaluated_in_one(tmp_path, make_adapter):
    with new_run(tmp_path / "run", replace(CONFIG, cluster=ClusterConfig(learners=2, shards=4, engines=8)), {}):
        make_adapter("T0", 1, folder=tmp_path / "run" / "adapters")
    assert find_sources([str(tmp_path / "run")], "T0").config == CONFIG


def test_an_adapter_for_another_base_is_named_with_what_was_expected(make_adapter, chat_base, tmp_path):
    folder, tiny = make_adapter("other", 1, str(chat_base)), base_shapes(BaseConfig())
    with pytest.raises(AdapterError, match=rf"'{folder}' is an adapter for another base.*q_proj' has \(in, out\) = \(32, 32\).*'tiny' has"):
        read_fitting(folder, tiny)
    deep = Adapter({"model.layers.9.mlp.up_proj": (torch.ones(1, 128), torch.ones(512, 1))}, 1, 1.0)
    save_adapter(deep, tmp_path / "deep", "tiny", ("up_proj",))
    with pytest.raises(AdapterError, match=r"'model.layers.9.mlp.up_proj'.*has no such linear module, its 28 are in 4 layers"):
        read_fitting(tmp_path / "deep", tiny)


def test_adapters_that_are_no_plain_lora_are_left_to_merging(make_adapter):
    folder = make_adapter("scaled", 1)
    settings = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(settings | {"use_rslora": True}))
    with pytest.raises(AdapterError, match=r"'.*scaled' has use_rslora = True.*--merge"):
        serve([folder], base_shapes(BaseConfig()))


def test_what_an_evaluation_began_with_is_kept_while_its_run_goes_on(run, out):
    found = find_sources([str(run)], "S0")
    pinned = pin(found, out)
    began = (out / "adapters" / "S0" / "adapter_model.safetensors").read_bytes()
    assert pinned.each[0].adapter == out / "adapters" / "S0" and steps(out) == {"S0": 2}
    advance(run, CONFIG, 4)
    pin(find_sources([str(run)], "S0,S1"), out)
    assert (out / "adapters" / "S0" / "adapter_model.safetensors").read_bytes() == began
    assert steps(out) == {"S0": 2, "S1": 4}


def test_a_run_that_is_writing_its_adapters_is_waited_for(run, out, monkeypatch):
    logged(run, 1, 2, 3, 4)
    monkeypatch.setattr(pinning.time, "sleep", lambda _: (run / "checkpoints" / "step_00004").mkdir(exist_ok=True))
    pin(find_sources([str(run)]), out)
    assert steps(out) == {"T0": 4, "S0": 4, "S1": 4}


def test_adapters_between_two_checkpoints_are_refused(run, out, monkeypatch):
    monkeypatch.setattr(pinning, "PATIENCE", 0.05)
    logged(run, 1, 2, 3)  # not due: the adapters are still those of step 2
    pin(find_sources([str(run)], "S0"), out)
    logged(run, 1, 2, 3, 4)
    with pytest.raises(RunDirectoryError, match=f"not of one step.*`populora resume {run}`"):
        pin(find_sources([str(run)], "S1"), out)


def test_an_evaluation_is_not_taken_up_with_other_sources(run, out, make_adapter, tmp_path):
    folder = make_adapter("mine", 1)
    pin(find_sources([str(folder)]), out)
    make_adapter("mine", 2)
    with pytest.raises(ConfigError, match=f"'{folder}' is not the adapter that '{out}' was begun with"):
        pin(find_sources([str(folder)]), out)
    with pytest.raises(ConfigError, match=r"was begun with base.path 'tiny', now it is 'Some/Model'"):
        pin(find_sources([str(folder)], base="Some/Model"), out)
    make_adapter("mine", 1)
    shutil.copytree(folder, tmp_path / "elsewhere" / "mine")
    with pytest.raises(ConfigError, match=r"was begun with sources.mine.from '.*mine', now it is '.*elsewhere/mine'"):
        pin(find_sources([str(tmp_path / "elsewhere" / "mine")]), out)


def test_a_copy_that_was_cut_short_is_made_again_and_a_changed_one_refused(out, make_adapter):
    folder = make_adapter("mine", 1)
    (out / "adapters" / "mine").mkdir(parents=True)
    (out / "adapters" / "mine" / "adapter_model.safetensors").write_bytes(b"half")
    pin(find_sources([str(folder)]), out)
    kept = out / "adapters" / "mine" / "adapter_model.safetensors"
    assert kept.read_bytes() == (folder / "adapter_model.safetensors").read_bytes()
    kept.write_bytes(b"other")
    with pytest.raises(ConfigError, match=r"is not the adapter that .* was begun with: restore it"):
        pin(find_sources([str(folder)]), out)
