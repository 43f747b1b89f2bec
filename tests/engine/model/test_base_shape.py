"""Shapes of a base that is read from its config.json: no weights, clear errors, and a GPU that is too small refused before any weight."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from populora.core.config import BaseConfig, ClusterConfig, Config, EngineConfig
from populora.core.errors import BaseModelError, ConfigError
from populora.engine.model.base_shape import check_memory, read_base_shape, shape_of_model
from populora.engine.model.loading import load_base
from populora.training.loop import build_run


def test_shapes_of_the_tiny_base_are_those_of_its_weights():
    model, _ = load_base(BaseConfig())
    assert read_base_shape(BaseConfig()) == shape_of_model("tiny", model)


def test_a_folder_with_a_config_alone_can_be_planned(tmp_path: Path):
    values = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24, "vocab_size": 100, "max_position_embeddings": 128,
        "tie_word_embeddings": False,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(values))
    shape = read_base_shape(BaseConfig(path=str(tmp_path)))
    assert (shape.head_size, shape.kv_heads, shape.context) == (24, 2, 128)
    attention, mlp = 64 * 4 * 24 * 2 + 64 * 2 * 24 * 2, 3 * 64 * 96
    assert shape.linear == 2 * (attention + mlp) and shape.parameters == shape.linear + 2 * 64 * 100 + 5 * 64


def test_a_base_that_is_nowhere_is_one_clear_error(tmp_path: Path):
    with pytest.raises(BaseModelError, match=r"base.path '.*gone': there is no such folder"):
        read_base_shape(BaseConfig(path=str(tmp_path / "gone")))
    with pytest.raises(BaseModelError, match=r"expected a folder or hub name .* or one of Qwen/Qwen2.5-Coder-0.5B"):
        read_base_shape(BaseConfig(path=str(tmp_path)))


def test_a_base_of_another_kind_is_refused(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 20}))
    with pytest.raises(BaseModelError, match=r"expected a dense causal LM .* it has no intermediate_size"):
        read_base_shape(BaseConfig(path=str(tmp_path)))


def test_a_gpu_too_small_for_the_base_is_refused_before_any_weight_is_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=12e9))
    monkeypatch.setattr("populora.engine.backend.load_base", lambda config: pytest.fail("weights were read"))
    config = Config(base=BaseConfig(path="Qwen/Qwen2.5-Coder-7B", dtype="bfloat16", device="cuda", prompts="azr"))
    with pytest.raises(ConfigError, match=r"needs 15\.2 GB for its weights alone, cuda has 12\.0: take a smaller base"), build_run(config):
        pass
    check_memory(replace(config, base=replace(config.base, path="Qwen/Qwen2.5-Coder-1.5B")))
    with pytest.raises(ConfigError, match=r"tensor_parallel is 4: expected as many GPUs, found 1"):
        check_memory(replace(config, engine=EngineConfig("vllm", tensor_parallel=4)))
    shared = replace(config, engine=EngineConfig("vllm", tensor_parallel=4), cluster=ClusterConfig(learners=1, shards=4))
    check_memory(shared)  # a quarter of the base twice; a process of a cluster sees only its own GPU
    with pytest.raises(ConfigError, match=r"needs 19\.0 GB for its weights alone"):
        check_memory(replace(shared, cluster=ClusterConfig(learners=4)))
