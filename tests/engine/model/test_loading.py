"""Bases that load, and the ones that are refused with what to do."""

import json
from pathlib import Path

import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
)

from populora.core.config import BaseConfig
from populora.core.errors import BaseModelError
from populora.engine.model import loading
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.packing import PromptGroup, pack


@pytest.fixture
def folder(tmp_path, make_base, tokenizer):
    make_base().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def test_a_saved_model_comes_back_frozen(folder, make_base, tokenizer):
    model, loaded = loading.load_base(BaseConfig(path=str(folder)))
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert not model.training
    assert torch.equal(model.lm_head.weight, make_base().lm_head.weight)
    text = "def f(x):\n    return x </answer>"
    assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"]


def test_weights_begin_at_multiples_of_64_bytes_wherever_their_file_has_them():
    folder = loading.base_folder(BaseConfig())
    mapped = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert any(parameter.data_ptr() % 64 for parameter in mapped.parameters()), "else there is nothing to mend"
    model, _ = loading.load_base(BaseConfig())
    assert {parameter.data_ptr() % 64 for parameter in model.parameters()} == {0}
    assert loading.base_fingerprint(model) == loading.base_fingerprint(mapped)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="expected /proc/self/maps, which lists a process's mapped files")
def test_mapped_weights_are_the_pages_of_their_file(folder):
    model, _ = loading.load_base(BaseConfig(path=str(folder)), mapped=True)
    file, maps = str(folder / "model.safetensors"), Path("/proc/self/maps").read_text().splitlines()
    ranges = [[int(end, 16) for end in line.split()[0].split("-")] for line in maps if line.endswith(file)]
    assert all(any(first <= weight.data_ptr() < last for first, last in ranges) for weight in model.parameters())
    copied, _ = loading.load_base(BaseConfig(path=str(folder)))
    assert loading.base_fingerprint(model) == loading.base_fingerprint(copied)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(BaseModelError, match="expected a folder or hub name"):
        loading.load_base(BaseConfig(path=str(tmp_path)))


def refused(folder, message):
    with pytest.raises(BaseModelError, match=message):
        loading.load_base(BaseConfig(path=str(folder)))


def test_a_base_without_some_of_its_weights_is_refused(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.self_attn.q_proj.bias"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    refused(folder, r"1 have none \(model\.layers\.1\.self_attn\.q_proj\.bias")


def test_a_base_whose_weights_do_not_fit_its_configuration_is_refused(folder):
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"intermediate_size": 80}))
    refused(folder, "loading failed")


def test_a_base_without_its_tokenizer_is_refused(folder):
    for file in folder.glob("*token*"):
        file.unlink()
    refused(folder, r"expected a tokenizer's files next to the weights, such as tokenizer.json, found none")


def test_a_folder_that_is_not_there_is_called_so(tmp_path):
    refused(tmp_path / "absent", "absent': there is no such folder")
    refused("~/absent", r"'~/absent': there is no such folder \(~ is not expanded\)")


def test_a_tokenizer_that_cannot_write_programs_or_is_damaged_is_refused(folder):
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}))
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    refused(folder, "and reads it back, got ids")
    (folder / "tokenizer.json").write_text('{"model": {"type": "BPE"}}')
    refused(folder, "loading failed: ")


def test_a_tokenizer_with_more_ids_than_the_base_is_refused(folder, make_base):
    base = make_base()
    base.resize_token_embeddings(100)
    base.save_pretrained(folder)
    refused(folder, r"its tokenizer has [0-9]+ tokens, its model embeddings for 100")


def test_a_package_without_the_tiny_base_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr(loading, "files", lambda package: tmp_path)
    with pytest.raises(BaseModelError, match="Reinstall populora"):
        loading.load_base(BaseConfig())


@pytest.mark.parametrize("name", ["mps", "xpu", "meta", "cpu:0", "cuda:-1", "cuda:01", "gpu", ""])
def test_only_the_cpu_and_cuda_devices_are_accepted(monkeypatch, name):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [loading.torch_device(known) for known in ("cpu", "cuda", "cuda:1")] == [
        torch.device(known) for known in ("cpu", "cuda", "cuda:1")
    ]
    with pytest.raises(BaseModelError, match=rf'base.device \'{name}\': expected "cpu", "cuda" or a CUDA device such as "cuda:1"'):
        loading.load_base(BaseConfig(device=name))
    with pytest.raises(BaseModelError, match="device 'cuda:2' is not available on this machine"):
        loading.load_base(BaseConfig(device="cuda:2"))


@pytest.mark.parametrize(("name", "current"), [("cuda:1", [torch.device("cuda:1")]), ("cuda", []), ("cpu", [])])
def test_a_second_gpu_is_the_current_device_before_anything_is_on_it(monkeypatch, tmp_path, name, current):
    """CUDA graphs and streams are made on the current device."""
    made: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", made.append)
    with pytest.raises(BaseModelError, match="loading failed"):
        loading.load_base(BaseConfig(path=str(tmp_path), device=name))
    assert made == current


def test_a_target_that_matches_nothing_is_refused_with_what_there_is(make_base):
    with pytest.raises(BaseModelError, match=r"'qproj' matches no linear module of the base; it has down_proj, gate_proj, k_proj"):
        AdaptedModel(make_base(), ("k_proj", "qproj"), 1, 4, 8.0)
    with pytest.raises(BaseModelError, match="'lm_head' matches no"):
        AdaptedModel(make_base(), ("lm_head",), 1, 4, 8.0)


def windowed(size: int) -> MistralForCausalLM:
    return MistralForCausalLM(MistralConfig(**SMALL, num_key_value_heads=1, max_position_embeddings=512, sliding_window=size))


def test_a_base_with_attention_of_another_kind_is_refused():
    with pytest.raises(BaseModelError, match=r"full attention .* this one has logits that differ by [0-9.e-]+ relative\. Choose"):
        AdaptedModel(windowed(4), ("q_proj",), 1, 4, 8.0)


def test_a_sliding_window_bounds_the_context_of_a_base():
    assert AdaptedModel(windowed(96), ("q_proj",), 1, 4, 8.0).context == 96


def test_the_adapted_model_cannot_be_called_around_its_route(adapted):
    with pytest.raises(BaseModelError, match="without its segments"):
        adapted.model(torch.tensor([[1, 2, 3]]))


SMALL = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


@pytest.mark.parametrize(
    ("config", "target"),
    [
        (LlamaConfig(**SMALL, num_key_value_heads=1), "down_proj"),
        (Qwen3Config(**SMALL, num_key_value_heads=1, head_dim=8), "k_proj"),
        (GPTNeoXConfig(**SMALL), "query_key_value"),
    ],
)
def test_other_families_of_causal_lms_work_too(config, target):
    adapted = AdaptedModel(AutoModelForCausalLM.from_config(config), (target,), 2, 4, 8.0)
    adapted.bank.initialise(0)
    adapted.bank.master += 0.1
    packed = pack([PromptGroup(0, [1, 2, 3], ([4, 5, 6],)), PromptGroup(1, [7], ([8, 9],))])
    adapted.logprobs(packed)[0].sum().backward()
    assert bool((adapted.bank.gradient != 0).any(dim=1).all())
