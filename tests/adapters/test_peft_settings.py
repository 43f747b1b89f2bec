"""Settings of PEFT folders: PEFT makes them, PEFT loads the child, and what cannot be bred is refused with reason and cure."""

import copy
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from peft_folders import SETTINGS, WEIGHTS, edit_settings, logits, saved
from safetensors.torch import load_file, save_file
from small_models import random_qwen2
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2ForCausalLM

from populora.adapters.operators import available_operators
from populora.adapters.operators.breeding import breed
from populora.adapters.peft_format import load_adapter, read_folder, save_folder
from populora.adapters.peft_settings import check_agreement, rank_of
from populora.core.errors import AdapterError
from populora.core.types import Lineage


@pytest.fixture(scope="module")
def qwen() -> Qwen2ForCausalLM:
    return random_qwen2(num_hidden_layers=3, hidden_size=16).eval()


@pytest.fixture(scope="module")
def gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2)).eval()


def adapted(model: PeftModel) -> dict[str, torch.nn.Module]:
    return {name: module for name, module in model.base_model.model.named_modules() if "default" in getattr(module, "lora_A", {})}


def mean_child(parents: list[Path], out: Path) -> Path:
    """What `populora breed --operator linear_0_5` writes, without its record."""
    folders = [read_folder(parent) for parent in parents]
    check_agreement(parents, [folder.settings for folder in folders])
    child, _ = breed([folder.adapter for folder in folders], Lineage("child", operator="linear_0_5"))
    save_folder(child, out, {SETTINGS: folders[0].text})
    return out


HANDLED = {
    "plain": {},
    "rslora": {"use_rslora": True},
    "ranks by module": {"rank_pattern": {"k_proj": 2, r"layers\.1\.self_attn\.[qv]_proj": 3}},
    "alphas by module": {"alpha_pattern": {"layers.0.self_attn.q_proj": 1, "v_proj": 32}},
    "ranks and alphas by module with rslora": {"rank_pattern": {"o_proj": 9}, "alpha_pattern": {"k_proj": 3}, "use_rslora": True},
    "targets as a regular expression": {"target_modules": r".*layers\.[02]\..*(up|v)_proj"},
    "all linear layers": {"target_modules": "all-linear"},
    "some layers": {"target_modules": ["q_proj"], "layers_to_transform": [0, 2], "layers_pattern": "layers"},
    "all but some modules": {"target_modules": "all-linear", "exclude_modules": [r"down_proj", "k_proj"]},
    "layers twice": {"layer_replication": [[0, 2], [1, 3]]},
    "active from a token on": {"alora_invocation_tokens": [3, 4]},
    "dropout": {"lora_dropout": 0.3},
    "another start": {"init_lora_weights": "orthogonal", "rank_pattern": {}},
}


@pytest.mark.parametrize("settings", HANDLED.values(), ids=HANDLED)
def test_peft_loads_the_child_with_the_parents_scale_and_the_mean_of_their_factors(qwen, tmp_path, settings):
    parents = [adapted(saved(qwen, tmp_path / name, seed, **settings)) for seed, name in enumerate("ab")]
    out = mean_child([tmp_path / "a", tmp_path / "b"], tmp_path / "child")
    child = adapted(PeftModel.from_pretrained(copy.deepcopy(qwen), out))
    assert child.keys() == parents[0].keys() == parents[1].keys() and child
    for name, layer in child.items():
        left, right = (parent[name] for parent in parents)
        assert layer.scaling == left.scaling == right.scaling
        a, b = ((getattr(left, x)["default"].weight + getattr(right, x)["default"].weight) / 2 for x in ("lora_A", "lora_B"))
        torch.testing.assert_close(layer.get_delta_weight("default"), left.scaling["default"] * (b @ a), atol=1e-6, rtol=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "child"]


@pytest.mark.parametrize("operator", available_operators())
def test_every_operator_keeps_ranks_that_differ_by_module(qwen, tmp_path, operator):
    patterns = {"rank_pattern": {"k_proj": 2, r"layers\.1\.self_attn\.[qv]_proj": 7}}
    folders = []
    for seed, name in enumerate("ab"[: available_operators()[operator].arity]):
        saved(qwen, tmp_path / name, seed, **patterns)
        folders.append(read_folder(tmp_path / name))
    plan = Lineage("child", operator=operator, strength={"k": 1} if operator == "m6" else {})
    child, _ = breed([folder.adapter for folder in folders], plan)
    save_folder(child, tmp_path / "child", {SETTINGS: folders[0].text})
    ranks = {layer.r["default"] for layer in adapted(PeftModel.from_pretrained(copy.deepcopy(qwen), tmp_path / "child")).values()}
    assert ranks == {2, 4, 7}


def test_a_base_that_keeps_its_weights_transposed(gpt2, tmp_path):
    settings = {"target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": True}
    parents = [saved(gpt2, tmp_path / name, seed, **settings) for seed, name in enumerate("ab")]
    loaded = PeftModel.from_pretrained(copy.deepcopy(gpt2), mean_child([tmp_path / "a", tmp_path / "b"], tmp_path / "child")).eval()
    for name, layer in adapted(loaded).items():
        for x in ("lora_A", "lora_B"):
            left, right = (getattr(adapted(parent)[name], x)["default"].weight for parent in parents)
            torch.testing.assert_close(getattr(layer, x)["default"].weight, (left + right) / 2)
    torch.testing.assert_close(
        logits(loaded.merge_and_unload()), logits(PeftModel.from_pretrained(copy.deepcopy(gpt2), tmp_path / "child"))
    )


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_parents_have_a_child_in_fp32(qwen, tmp_path, kind):
    for seed, name in enumerate("ab"):
        saved(qwen, tmp_path / name, seed)
        tensors = load_file(tmp_path / name / WEIGHTS)
        save_file({key: tensor.to(kind) for key, tensor in tensors.items()}, tmp_path / name / WEIGHTS, metadata={"format": "pt"})
    out = mean_child([tmp_path / "a", tmp_path / "b"], tmp_path / "child")
    left, right, child = (load_file(folder / WEIGHTS) for folder in (tmp_path / "a", tmp_path / "b", out))
    for key, tensor in child.items():
        assert tensor.dtype == torch.float32 and left[key].dtype == kind
        torch.testing.assert_close(tensor, (left[key].float() + right[key].float()) / 2)


def test_ranks_are_those_that_peft_gives(qwen, tmp_path):
    patterns = {"k_proj": 2, r"layers\.\d\.self_attn\.[qk]_proj": 3, "proj": 7, "model.layers.1.self_attn.o_proj": 5}
    layers = adapted(saved(qwen, tmp_path, rank_pattern=patterns))
    settings = read_folder(tmp_path).settings
    assert {name: rank_of(name, settings) for name in layers} == {name: layer.r["default"] for name, layer in layers.items()}
    assert {layer.r["default"] for layer in layers.values()} == {2, 3, 4, 5}
    assert read_folder(tmp_path).adapter.rank == 2


@pytest.mark.parametrize(
    "settings",
    [{"use_rslora": True}, {"rank_pattern": {"q_proj": 2}}, {"alpha_pattern": {"q_proj": 2}}, {"layer_replication": [[0, 2], [1, 3]]}],
    ids=lambda settings: next(iter(settings)),
)
def test_a_member_of_a_run_has_one_rank_and_one_scale(qwen, tmp_path, settings):
    saved(qwen, tmp_path, **settings)
    read_folder(tmp_path)
    with pytest.raises(AdapterError, match=f"{next(iter(settings))}.*`populora breed` takes such adapters"):
        load_adapter(tmp_path)


REFUSED = {
    "DoRA": ({"use_dora": True}, "use_dora: DoRA's magnitudes .* train it without, or merge it"),
    "biases of the factors": ({"lora_bias": True}, "lora_bias: it trains biases, .* train it without"),
    "biases of the base": ({"bias": "lora_only"}, "bias is 'lora_only': it trains biases of the base, .* train it without"),
    "whole modules": ({"modules_to_save": ["lm_head"]}, "modules_to_save: it holds whole modules of the base, .* train it without"),
    "tokens": ({"trainable_token_indices": [1]}, "trainable_token_indices: it trains token embeddings, .* train it without"),
    "PiSSA": ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa': .* path_initial_model_for_weight_conversion"),
    "OLoRA": ({"init_lora_weights": "olora"}, "init_lora_weights is 'olora'"),
    "embeddings": ({"target_modules": ["embed_tokens", "q_proj"]}, "'base_model.model.model.embed_tokens.* (linear modules|embeddings)"),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "message"), REFUSED.values(), ids=REFUSED)
def test_what_trains_more_than_factors_is_refused_with_reason_and_cure(qwen, tmp_path, settings, message):
    saved(qwen, tmp_path, **settings)
    with pytest.raises(AdapterError, match=message):
        read_folder(tmp_path)


def test_an_embedding_is_refused_also_without_its_weights(qwen, tmp_path):
    saved(qwen, tmp_path, target_modules=["embed_tokens", "q_proj"]).save_pretrained(tmp_path, save_embedding_layers=False)
    with pytest.raises(AdapterError, match=r"lora_embedding_A.*It adapts an embedding: train it with linear modules as targets"):
        read_folder(tmp_path)


def test_resized_embeddings_are_refused_with_the_way_to_leave_them_out(qwen, tmp_path):
    saved(qwen, tmp_path).save_pretrained(tmp_path, save_embedding_layers=True)
    with pytest.raises(AdapterError, match=r"(embed_tokens|lm_head).*save_embedding_layers=False"):
        read_folder(tmp_path)
    saved(qwen, tmp_path).save_pretrained(tmp_path, save_embedding_layers=False)
    read_folder(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peft_type": "IA3"}, "peft_type LORA"),
        ({"r": "3"}, "rank r"),
        ({"r": True}, "rank r"),
        ({"lora_alpha": None}, "lora_alpha"),
        ({"lora_alpha": float("nan")}, "lora_alpha"),
        ({"r": 3}, "rank r = 3"),
        ({"use_hyperlora": True}, "use_hyperlora = True is not known: it may change what the factors mean; remove it"),
        ({"rank_pattern": {"q_proj": 0}}, "expected rank_pattern to map patterns"),
        ({"rank_pattern": [2]}, "expected rank_pattern to map patterns"),
        ({"alpha_pattern": {"q_proj": "8"}}, "expected alpha_pattern to map patterns"),
        ({"alpha_pattern": {"(q_proj": 8}}, "no regular expression"),
        ({"rank_pattern": {"q_proj": 2}}, r"q_proj' has A \(4, 16\).*of rank r = 2"),
    ],
)
def test_settings_that_are_unknown_or_impossible_are_refused(qwen, tmp_path, changes, message):
    saved(qwen, tmp_path)
    edit_settings(tmp_path, use_hyperlora=None)  # empty: it changes nothing
    read_folder(tmp_path)
    edit_settings(tmp_path, **changes)
    with pytest.raises(AdapterError, match=message):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"), [("use_rslora", True), ("alpha_pattern", {"q_proj": 3}), ("rank_pattern", {"x": 2}), ("fan_in_fan_out", True)]
)
def test_parents_whose_factors_mean_different_things_are_refused(qwen, tmp_path, name, value):
    for folder in ("a", "b"):
        saved(qwen, tmp_path / folder)
    edit_settings(tmp_path / "b", **{name: value})
    with pytest.raises(AdapterError, match=rf"differ in {name}: None in '.*a', .* in '.*b'.*equal LoRA settings"):
        mean_child([tmp_path / "a", tmp_path / "b"], tmp_path / "child")
    edit_settings(tmp_path / "a", **{name: value})
    mean_child([tmp_path / "a", tmp_path / "b"], tmp_path / "child")


def test_patterns_in_another_order_mean_different_things(qwen, tmp_path):
    patterns = {"q_proj": 3, "layers.0.self_attn.q_proj": 5}  # the first that matches counts
    for folder, pattern in (("a", patterns), ("b", dict(reversed(patterns.items())))):
        saved(qwen, tmp_path / folder)
        edit_settings(tmp_path / folder, alpha_pattern=pattern)
    with pytest.raises(AdapterError, match="differ in alpha_pattern"):
        mean_child([tmp_path / "a", tmp_path / "b"], tmp_path / "child")


@pytest.mark.parametrize("changes", [{"base_model_name_or_path": "other/base"}, {"revision": "v2"}])
def test_parents_of_different_bases_are_refused_unless_that_is_accepted(qwen, tmp_path, changes):
    parents = [tmp_path / "a", tmp_path / "b"]
    for folder in parents:
        saved(qwen, folder)
    edit_settings(parents[1], **changes)
    settings = [read_folder(folder).settings for folder in parents]
    with pytest.raises(AdapterError, match=r"different bases.*(other/base|revision v2).*--allow-other-base"):
        check_agreement(parents, settings)
    check_agreement(parents, settings, other_base=True)
