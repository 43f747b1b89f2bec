"""Model shapes that ship as data, against transformers' own models (the independent count) and published figures."""

from __future__ import annotations

import pytest

from populora.core.config import LoraConfig
from populora.core.errors import BaseModelError
from populora.engine.planning.model_shape import FAMILY, QWEN_CODER, known_shape, qwen2

TARGETS = LoraConfig().targets
PUBLISHED = {"0.5B": (0.49, 0.36), "1.5B": (1.54, 1.31), "3B": (3.09, 2.77), "7B": (7.61, 6.53), "14B": (14.7, 13.1), "32B": (32.5, 31.0)}
"""Billions of parameters, and without embeddings, by the model cards."""


@pytest.mark.parametrize("size", QWEN_CODER)
def test_known_shapes_are_those_of_transformers_model_and_of_the_model_cards(size: str):
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from populora.engine.model.base_shape import shape_of_model

    hidden, inner, layers, heads, kv_heads, vocabulary, tied, context = QWEN_CODER[size]
    config = Qwen2Config(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, max_position_embeddings=context, tie_word_embeddings=tied,
    )  # fmt: skip
    with torch.device("meta"):
        model = Qwen2ForCausalLM(config)
    shape = known_shape(FAMILY + size)
    assert shape and shape_of_model(FAMILY + size, model) == shape
    total, without = PUBLISHED[size]
    assert shape.parameters / 1e9 == pytest.approx(total, rel=0.01)
    assert (shape.parameters - shape.head * (1 if tied else 2)) / 1e9 == pytest.approx(without, rel=0.01)


def test_figures_of_the_paper_s_base(seven):
    assert seven.linear / 1e9 == pytest.approx(6.53, abs=0.005) and seven.head / 1e9 == pytest.approx(0.545, abs=0.0005)
    assert seven.adapter(32, TARGETS) / 1e6 == pytest.approx(20.19, abs=0.005)
    assert 2 * seven.adapter(32, TARGETS) / 2**20 == pytest.approx(38.5, abs=0.05)
    assert seven.kv_bytes(2) == 56 * 1024


def test_an_adapter_has_as_many_parameters_as_the_bank_gives_it():
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from populora.engine.model.model import AdaptedModel

    shape = qwen2("small", 32, 48, 2, 4, 2, 64, tied=True, context=64)
    config = Qwen2Config(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, tie_word_embeddings=True,
    )  # fmt: skip
    targets = ("q_proj", "mlp.down_proj")
    bank = AdaptedModel(Qwen2ForCausalLM(config), targets, 1, 4, 8.0).bank
    assert bank.modules == shape.adapted(targets) and bank.master.shape[1] == shape.adapter(4, targets)


def test_unknown_targets_and_models_are_not_found(seven):
    with pytest.raises(BaseModelError, match=r"'c_attn' matches no linear module of the base; it has down_proj, gate_proj, k_proj"):
        seven.adapted(("q_proj", "c_attn"))
    assert known_shape(FAMILY + "1.5B-Instruct")
    assert known_shape(FAMILY + "70B") is None and known_shape("7B") is None
