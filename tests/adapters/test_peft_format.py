"""PEFT itself is the oracle: it loads what we write, we load what it writes, and what we cannot hold is refused with the reason."""

from __future__ import annotations

import copy
import json
import warnings

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from populora.adapters import peft_format
from populora.adapters.adapter import Adapter
from populora.adapters.peft_format import load_adapter, save_adapter
from populora.core.errors import AdapterError

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")
WEIGHTS, SETTINGS = "adapter_model.safetensors", "adapter_config.json"


@pytest.fixture(scope="module")
def base() -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2}
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=40, num_hidden_layers=11, **sizes)).eval()


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


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.arange(12)[None]).logits


def from_peft(base: Qwen2ForCausalLM, folder, **settings) -> PeftModel:
    torch.manual_seed(2)
    defaults = {"r": 3, "lora_alpha": 6, "target_modules": list(TARGETS), "init_lora_weights": False, "task_type": "CAUSAL_LM"}
    model = get_peft_model(copy.deepcopy(base), LoraConfig(**(defaults | settings)))
    model.save_pretrained(folder)
    return model.eval()


def edit_settings(folder, **changes) -> None:
    path = folder / SETTINGS
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


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
    model = from_peft(base, tmp_path)
    adapter = load_adapter(tmp_path)
    assert (adapter.rank, adapter.alpha, len(adapter.modules)) == (3, 6.0, 44)
    for name, (a, b) in adapter.modules.items():
        layer = model.base_model.model.get_submodule(name)
        assert torch.equal(a, layer.lora_A["default"].weight) and torch.equal(b, layer.lora_B["default"].weight)


def test_round_trip_is_exact_in_the_order_of_the_model(base, adapter, tmp_path):
    assert next(i for i, name in enumerate(adapter.modules) if ".10." in name) == 40  # alphabetical order would put it at 4
    save_adapter(adapter, tmp_path / "a", "some/base", sorted(TARGETS))
    loaded = load_adapter(tmp_path / "a")
    assert list(loaded.modules) == list(adapter.modules)
    assert loaded.fingerprint() == adapter.fingerprint()


def test_equal_adapters_are_equal_files_and_an_adapter_can_be_replaced(base, adapter, tmp_path):
    other = random_adapter(base, rank=2)
    save_adapter(other, tmp_path / "a", "some/base", TARGETS)
    (tmp_path / "a" / "README.md").write_text("a card")
    for name in "ab":
        save_adapter(adapter, tmp_path / name, "some/base", TARGETS)
    for name in (WEIGHTS, SETTINGS):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert (tmp_path / "a" / "README.md").read_text() == "a card"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_the_settings_are_pefts(base, adapter, tmp_path):
    save_adapter(adapter, tmp_path / "a", "some/base", TARGETS)
    ours = json.loads((tmp_path / "a" / SETTINGS).read_text())
    from_peft(base, tmp_path / "theirs", init_lora_weights=True)
    theirs = json.loads((tmp_path / "theirs" / SETTINGS).read_text())
    differing = {name for name in ours if ours[name] != theirs[name]}
    assert differing <= {"base_model_name_or_path", "target_modules"}  # PEFT lists the targets in no fixed order
    assert ours["base_model_name_or_path"] == "some/base" and set(ours["target_modules"]) == set(theirs["target_modules"])


@pytest.mark.parametrize(("alpha", "stored"), [(16.0, "16"), (7.5, "7.5")])
def test_alpha_is_stored_as_peft_writes_it(base, tmp_path, alpha, stored):
    save_adapter(random_adapter(base, alpha=alpha), tmp_path / "a", "some/base", TARGETS)
    assert f'"lora_alpha": {stored},' in (tmp_path / "a" / SETTINGS).read_text()
    assert load_adapter(tmp_path / "a").alpha == alpha


def test_half_precision_weights_become_fp32(base, adapter, tmp_path):
    save_adapter(adapter, tmp_path, "some/base", TARGETS)
    halves = {key: tensor.bfloat16() for key, tensor in load_file(tmp_path / WEIGHTS).items()}
    save_file(halves, tmp_path / WEIGHTS, metadata={"format": "pt"})
    loaded = load_adapter(tmp_path)
    for name, pair in adapter.modules.items():
        for tensor, original in zip(loaded.modules[name], pair, strict=True):
            assert torch.equal(tensor, original.bfloat16().float())


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"use_rslora": True}, "rslora"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"alpha_pattern": {"q_proj": 2}}, "alpha_pattern"),
        ({"bias": "all"}, "bias"),
        ({"lora_bias": True}, "lora_bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"init_lora_weights": "pissa"}, "pissa"),
    ],
)
def test_what_is_not_plain_lora_is_refused_with_the_reason(base, tmp_path, settings, reason):
    from_peft(base, tmp_path, **settings)
    if "init_lora_weights" in settings:  # PEFT converts the setting on saving in some versions
        edit_settings(tmp_path, **settings)
    with pytest.raises(AdapterError, match=reason):
        load_adapter(tmp_path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"peft_type": "IA3"}, "peft_type LORA"),
        ({"r": "3"}, "rank r"),
        ({"r": True}, "rank r"),
        ({"lora_alpha": None}, "lora_alpha"),
        ({"lora_alpha": float("nan")}, "lora_alpha"),
        ({"r": 4}, "rank r = 4"),
    ],
)
def test_impossible_settings_are_refused(adapter, tmp_path, changes, reason):
    save_adapter(adapter, tmp_path, "some/base", TARGETS)
    edit_settings(tmp_path, **changes)
    with pytest.raises(AdapterError, match=reason):
        load_adapter(tmp_path)


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


def test_an_adapter_that_does_not_read_back_equal_is_not_written(base, adapter, tmp_path, monkeypatch):
    def flipping(tensors, path, metadata):
        save_file({key: -tensor for key, tensor in tensors.items()}, path, metadata=metadata)

    monkeypatch.setattr(peft_format, "save_file", flipping)
    with pytest.raises(AdapterError, match="does not read back equal"):
        save_adapter(adapter, tmp_path / "a", "some/base", TARGETS)
    assert list(tmp_path.iterdir()) == []


def test_unwritable_places_and_nan_leave_nothing_behind(base, adapter, tmp_path):
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(AdapterError, match="cannot write"):
            save_adapter(adapter, folder, "some/base", TARGETS)
    broken = copy.deepcopy(adapter)
    next(iter(broken.modules.values()))[1][0, 0] = float("inf")
    with pytest.raises(AdapterError, match="NaN or infinite"):
        save_adapter(broken, tmp_path / "a", "some/base", TARGETS)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
