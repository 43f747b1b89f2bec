"""What is evaluated: found by path or name, kept as it was, and refused with what was expected."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_sources import advance, base_facts, running

from populora.adapters.adapter import Adapter
from populora.adapters.peft_format import save_adapter
from populora.core.config import BaseConfig, ClusterConfig, Config, LoraConfig, PopulationConfig
from populora.core.errors import AdapterError, ConfigError, RunDirectoryError
from populora.engine.model.shapes import base_shapes
from populora.evals import pinning
from populora.evals.generation_file import check_folder
from populora.evals.members import examine
from populora.evals.pinning import pin
from populora.evals.serving import read_fitting, serve
from populora.evals.sources import Source, find_sources

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
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(RunDirectoryError, match=r"has no checkpoint.*name the folders of its adapters \('.*run/adapters/T0'\)"):
        find_sources([str(run)])


def test_an_adapter_is_found_with_the_base_that_it_names(make_adapter, chat_base):
    found = find_sources([str(make_adapter("mine", 1, str(chat_base)))])
    assert found.each == (Source("mine", "adapter", found.each[0].adapter),)
    assert found.config.base == BaseConfig(path=str(chat_base), prompts="azr")
    assert find_sources([str(make_adapter("mine", 1))], base="other/base").config.base.path == "other/base"


def test_an_exported_adapter_of_the_tiny_base_is_for_tiny(make_adapter):
    folder = make_adapter("exported", 1)
    settings = json.loads((folder / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = str(Path(pinning.__file__).parents[1] / "engine" / "model" / "tiny_base")
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
        find_sources(["tiny"], base="other/base")
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


def test_a_run_of_many_processes_is_evaluated_in_one(tmp_path):
    with running(tmp_path / "run", replace(CONFIG, cluster=ClusterConfig(learners=2, shards=4, engines=8)), 2):
        pass
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


def pinned(run: Path, out: Path, members: str = "all"):
    found = find_sources([str(run)], members)
    return pin(found, out)


def known(out: Path) -> dict[str, dict]:
    return json.loads((out / "generation.json").read_text())["sources"]


def steps(out: Path) -> dict[str, int]:
    return {name: facts["step"] for name, facts in known(out).items()}


def test_what_an_evaluation_began_with_is_kept_while_its_run_goes_on(run, out):
    kept = out / "adapters" / "S0" / "adapter_model.safetensors"
    assert pinned(run, out, "S0").each[0].adapter == kept.parent and steps(out) == {"S0": 2}
    began = kept.read_bytes()
    assert began == (run / "adapters" / "S0" / "adapter_model.safetensors").read_bytes()
    advance(run, CONFIG, 4)
    pinned(run, out, "S0")
    assert kept.read_bytes() == began and steps(out) == {"S0": 2}


def test_members_are_those_of_the_newest_checkpoint(run, out):
    before = {name: (run / "adapters" / name / "adapter_model.safetensors").read_bytes() for name in ("T0", "S0", "S1")}
    pinned(run, out)
    assert {name: (out / "adapters" / name / "adapter_model.safetensors").read_bytes() for name in before} == before
    assert steps(out) == {"T0": 2, "S0": 2, "S1": 2}


def test_members_of_one_run_at_different_steps_are_not_put_together(run, out):
    pinned(run, out, "T0,S0")
    advance(run, CONFIG, 4)
    with pytest.raises(ConfigError, match=rf"'{out}' has 'T0' at step 2 of its run, and '{run}' is at step 4 now.*into a new folder"):
        pinned(run, out)
    assert set(known(out)) == {"T0", "S0"} and pinned(run, out, "S0,T0").each[0].name == "S0"


def test_members_of_another_run_are_not_taken_for_those_of_the_same_name(run, out, tmp_path):
    pinned(run, out, "S0")
    with (
        running(tmp_path / "other", replace(CONFIG, seed=5), 2) as other,
        pytest.raises(ConfigError, match=r"was begun with sources.S0.run '\w+', now it is"),
    ):
        pinned(other, out, "S0")


def test_a_run_that_was_moved_is_gone_on_with(tmp_path, out):
    with running(tmp_path / "before", CONFIG, 2) as folder:
        pinned(folder, out)
    first = (out / "generation.json").read_bytes()
    folder.rename(tmp_path / "after")
    pinned(tmp_path / "after", out)
    assert (out / "generation.json").read_bytes() == first and known(out)["T0"]["from"] == str(folder)


def test_a_run_on_another_base_than_it_was_trained_on_is_refused(run, chat_base):
    with pytest.raises(ConfigError, match=rf"'{chat_base}' is not the base that '{run}' was trained on: expected weights of SHA-256 "):
        examine(BaseConfig(path=str(chat_base)), [run])
    assert examine(BaseConfig(), [run]).sha256 == base_facts()["base_sha256"] == examine(BaseConfig(), []).sha256
    other = examine(BaseConfig(dtype="bfloat16"), [run])  # the run is compared in its own precision
    assert other.sha256 == base_facts("tiny", "bfloat16")["base_sha256"] != base_facts()["base_sha256"]


def test_an_evaluation_is_not_taken_up_with_other_sources(out, make_adapter, tmp_path):
    folder = make_adapter("mine", 1)
    pin(find_sources([str(folder)]), out)
    make_adapter("mine", 2)
    with pytest.raises(ConfigError, match=f"'{folder}' is not the adapter that '{out}' was begun with"):
        pin(find_sources([str(folder)]), out)


def test_an_adapter_that_was_moved_is_gone_on_with_by_its_bytes(out, make_adapter, tmp_path):
    folder = make_adapter("mine", 1)
    pin(find_sources([str(folder)]), out)
    first = (out / "generation.json").read_bytes()
    moved = folder.rename(tmp_path / "elsewhere")
    (tmp_path / "there").mkdir()
    moved = moved.rename(tmp_path / "there" / "mine")
    pin(find_sources([str(moved)]), out)
    assert (out / "generation.json").read_bytes() == first and known(out)["mine"]["from"] == str(folder)


@pytest.mark.parametrize("held", ["run.json", "config.json", "adapters", "notes.txt"])
def test_a_folder_that_holds_something_else_is_refused(out, held):
    for name in ("lock", "evaluation.json.part"):
        (out / name).touch()
    check_folder(out)
    check_folder(out / "new")
    (out / held).touch()
    with pytest.raises(ConfigError, match=rf"'{out}' is .*it holds '{held}'"):
        check_folder(out)
    (out / "generation.json").touch()
    if held.endswith(".json"):
        with pytest.raises(ConfigError, match="is a run or a model"):
            check_folder(out)
    else:
        check_folder(out)


def test_an_adapter_is_not_copied_onto_itself(out, make_adapter):
    folder = make_adapter("mine", 1, folder=out / "adapters")
    before = (folder / "adapter_model.safetensors").read_bytes()
    with pytest.raises(ConfigError, match=f"'{folder}' is where the evaluation in '{out}' keeps its copy"):
        pin(find_sources([str(folder)]), out)
    assert (folder / "adapter_model.safetensors").read_bytes() == before


def test_a_base_may_be_named_twice(make_adapter, chat_base, tmp_path, monkeypatch):
    mine = make_adapter("mine", 1, str(chat_base))
    settings = json.loads((mine / "adapter_config.json").read_text())
    (mine / "adapter_config.json").write_text(json.dumps(settings | {"base_model_name_or_path": "trained/elsewhere"}))
    monkeypatch.chdir(chat_base.parent)
    for what, base in ((str(chat_base), str(chat_base)), ("./chat", "chat"), ("chat", str(chat_base))):
        found = find_sources([what, str(mine)], base=base)
        assert [source.name for source in found.each] == ["base", "mine"] and found.config.base.path == base and not found.unfit
    assert [source.name for source in find_sources(["tiny"], base="tiny").each] == ["base"]


def test_a_mistake_in_a_path_is_not_looked_up_on_the_hub(tmp_path, monkeypatch):
    (tmp_path / "runs" / "tiny").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"'runs/tinny': expected a run.* it is no folder. Did you mean 'runs/tiny'\?"):
        find_sources(["runs/tinny"])
    with pytest.raises(ConfigError, match=r"'./run': expected .*Did you mean 'runs'\?"):
        find_sources(["./run"])
    assert find_sources(["Some/Model-7B"]).config.base.path == "Some/Model-7B"


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
