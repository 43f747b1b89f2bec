"""Model shapes that ship as data, against transformers' own models (the independent count) and published figures."""

import pytest
import torch
from small_models import random_qwen2

from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.base_shape import shape_of_model
from populora.engine.planning.model_shape import FAMILY, QWEN_CODER, known_shape, qwen2

PUBLISHED = {"0.5B": (0.49, 0.36), "1.5B": (1.54, 1.31), "3B": (3.09, 2.77), "7B": (7.61, 6.53), "14B": (14.7, 13.1), "32B": (32.5, 31.0)}
"""Billions of parameters, and without embeddings, by the model cards."""


@pytest.mark.parametrize("size", QWEN_CODER)
def test_known_shapes_are_those_of_transformers_model_and_of_the_model_cards(size: str):
    hidden, inner, layers, heads, kv_heads, vocabulary, tied, context = QWEN_CODER[size]
    with torch.device("meta"):
        model = random_qwen2(
            vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
            num_key_value_heads=kv_heads, max_position_embeddings=context, tie_word_embeddings=tied,
        )  # fmt: skip
    shape = known_shape(FAMILY + size)
    assert shape and shape_of_model(FAMILY + size, model) == shape
    total, without = PUBLISHED[size]
    assert shape.parameters / 1e9 == pytest.approx(total, rel=0.01)
    assert (shape.parameters - shape.head * (1 if tied else 2)) / 1e9 == pytest.approx(without, rel=0.01)


def test_an_adapter_has_as_many_parameters_as_the_bank_gives_it():
    shape = qwen2("small", 32, 64, 2, 4, 2, 96, tied=True, context=128)
    targets = ("q_proj", "mlp.down_proj")
    bank = AdaptedModel(random_qwen2(), targets, 1, 4, 8.0).bank
    assert bank.modules == shape.adapted(targets) and bank.master.shape[1] == shape.adapter(4, targets)


def test_models_are_known_by_their_hub_names():
    assert known_shape(FAMILY + "1.5B-Instruct")
    assert known_shape(FAMILY + "70B") is None and known_shape("7B") is None
