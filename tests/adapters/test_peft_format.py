"""PEFT itself is the oracle: it loads what we write, we load what it writes, and what we cannot hold is refused with the reason."""

import copy
import json
import warnings

import pytest
import torch
from peft import PeftModel
from peft_folders import ATTENTION, SETTINGS, WEIGHTS, logits, saved
from safetensors.torch import load_file, save_file
from small_models import random_qwen2
from transformers import Qwen2ForCausalLM

from populora.adapters.adapter import Adapter
from populora.adapters.peft_format import load_adapter, save_adapter
from populora.core.errors import AdapterError

TARGETS = tuple(ATTENTION)


@pytest.fixture(scope="module")
def base() -> Qwen2ForCausalLM:
    return random_qwen2(num_hidden_layers=11).eval()


@pytest.fixture
def adapter(base) -> Adapter:
    return random_adapter(base)


def random_adapter(base: Qwen2ForCausalLM, rank: int = 3, alpha: float = 6.0) -> Adapter:
    generator = torch.Generator().manual_seed(1)
    modules = {}
    for name, module in base.named_modules():
        if name.endswith(TARGETS):
            a = torch.randn(rank, module.in_features, generator=generator) / 4
            modules[name] = (a, torch.randn(module.out_features, rank, generator=generator) / 4)
    return Adapter(modules, rank, alpha)


def test_peft_loads_our_folder_and_gives_the_logits_of_the_merged_delta(base, adapter, tmp_path):
    save_adapter(adapter, tmp_path / "a", "some/base", TARGETS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = PeftModel.from_pretrained(copy.deepcopy(base), tmp_path / "a").eval()
    assert not [str(w.message) for w in caught if "adapter" in str(w.message)]
    merged = copy.deepcopy(base)
    for name, (a, b) in adapter.modules.items():
        merged.get_submodule(name).weight.data += adapter.alpha / adapter.rank * (b @ a)
    torch.testing.assert_close(logits(loaded), logits(merged), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(logits(loaded), logits(base), atol=1e-2)


def test_we_load_what_peft_saves(base, tmp_path):
    model = saved(base, tmp_path)
    adapter = load_adapter(tmp_path)
    assert (adapter.rank, adapter.alpha, len(adapter.modules)) == (4, 6.0, 44)
    for name, (a, b) in adapter.modules.items():
        layer = model.base_model.model.get_submodule(name)
        assert torch.equal(a, layer.lora_A["default"].weight) and torch.equal(b, layer.lora_B["default"].weight)


def test_round_trip_is_exact_in_the_order_of_the_model(base, adapter, tmp_path):
    assert next(i for i, name in enumerate(adapter.modules) if ".10." in name) == 40  # alphabetical order would put it at 4
    save_adapter(adapter, tmp_path / "a", "some/base", sorted(TARGETS))
    loaded = load_adapter(tmp_path / "a")
    assert list(loaded.modules) == list(adapter.modules)
    assert loaded.fingerprint() == adapter.fingerprint()


def test_the_settings_are_pefts(base, adapter, tmp_path):
    save_adapter(adapter, tmp_path / "a", "some/base", TARGETS)
    ours = json.loads((tmp_path / "a" / SETTINGS).read_text())
    saved(base, tmp_path / "theirs", r=3, init_lora_weights=True)
    theirs = json.loads((tmp_path / "theirs" / SETTINGS).read_text())
    differing = {name for name in ours if ours[name] != theirs[name]}
    assert differing <= {"base_model_name_or_path", "target_modules"}  # PEFT lists the targets in no fixed order
    assert ours["base_model_name_or_path"] == "some/base" and set(ours["target_modules"]) == set(theirs["target_modules"])


def test_half_precision_weights_become_fp32(base, adapter, tmp_path):
    save_adapter(adapter, tmp_path, "some/base", TARGETS)
    halves = {key: tensor.bfloat16() for key, tensor in load_file(tmp_path / WEIGHTS).items()}
    save_file(halves, tmp_path / WEIGHTS, metadata={"format": "pt"})
    loaded = load_adapter(tmp_path)
    for name, pair in adapter.modules.items():
        for tensor, original in zip(loaded.modules[name], pair, strict=True):
            assert torch.equal(tensor, original.bfloat16().float())


KEY = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda tensors: tensors.pop(KEY), "q_proj.* lora_B only"),
        (lambda tensors: tensors.update({KEY: tensors[KEY] * float("nan")}), "NaN or infinite"),
        (lambda tensors: tensors.update({KEY: tensors[KEY] / 0.0}), "NaN or infinite"),
        (lambda tensors: tensors.update({KEY: tensors[KEY][:2].contiguous()}), "rank r = 3"),
        (lambda tensors: tensors.update({KEY: tensors[KEY].int()}), "matrix of floats"),
        (lambda tensors: tensors.update({KEY: tensors[KEY][0].clone()}), "matrix of floats"),
        (lambda tensors: tensors.update({"base_model.model.lm_head.weight": torch.ones(2, 2)}), "lm_head.weight"),
        (lambda tensors: tensors.clear(), "no LoRA factors"),
    ],
)
def test_unfit_weights_are_refused(adapter, tmp_path, change, reason):
    save_adapter(adapter, tmp_path, "some/base", TARGETS)
    tensors = load_file(tmp_path / WEIGHTS)
    change(tensors)
    save_file(tensors, tmp_path / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(AdapterError, match=reason):
        load_adapter(tmp_path)


def test_missing_and_damaged_files_are_refused(adapter, tmp_path):
    with pytest.raises(AdapterError, match=SETTINGS):
        load_adapter(tmp_path / "nowhere")
    save_adapter(adapter, tmp_path, "some/base", TARGETS)
    weights = (tmp_path / WEIGHTS).read_bytes()
    for damaged in (b"", weights[: len(weights) // 2], b"garbage" * 100):
        (tmp_path / WEIGHTS).write_bytes(damaged)
        with pytest.raises(AdapterError, match="damaged"):
            load_adapter(tmp_path)
    (tmp_path / WEIGHTS).unlink()
    (tmp_path / "adapter_model.bin").write_bytes(b"")
    with pytest.raises(AdapterError, match="Pickled"):
        load_adapter(tmp_path)
    for broken in ("{", "[]", "\udcff"):
        (tmp_path / SETTINGS).write_text(broken, errors="surrogateescape")
        with pytest.raises(AdapterError, match=SETTINGS):
            load_adapter(tmp_path)


@pytest.mark.parametrize("targets", [("q_proj",), (*TARGETS, "gate_proj"), ()])
def test_targets_that_do_not_describe_the_modules_write_nothing(adapter, tmp_path, targets):
    with pytest.raises(AdapterError, match="targets"):
        save_adapter(adapter, tmp_path / "a", "some/base", targets)
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_two_modules_of_a_layer_share_reads_back_equal(tmp_path):
    names = [f"transformer.h.0.{name}" for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")]  # in the model's order
    made = Adapter({name: (torch.randn(2, 4), torch.randn(4, 2)) for name in names}, 2, 4.0)
    save_adapter(made, tmp_path / "a", "some/base", ("c_attn", "c_proj", "c_fc"))
    loaded = load_adapter(tmp_path / "a")
    assert loaded.modules.keys() == made.modules.keys()
    assert all(torch.equal(x, y) for name in names for x, y in zip(loaded.modules[name], made.modules[name], strict=True))


def test_a_place_that_is_not_free_is_an_error_and_keeps_its_files(adapter, tmp_path):
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path, tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(AdapterError, match="cannot write"):
            save_adapter(adapter, folder, "some/base", TARGETS)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
