"""Adapters weighed token by token, as CUDA graphs need them, against the same tokens in segments."""

import pytest
import torch
from small_models import random_qwen2

from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.packing import Packed, PromptGroup, pack
from populora.engine.model.segments import SegmentMap, SlotWeights

SLOTS, RANKS = (-1, 0, 0, 1, 2, 3), (4, 8, 3, 8)


def adapted_model(dtype: torch.dtype) -> AdaptedModel:
    base = random_qwen2(
        vocab_size=64, hidden_size=48, num_attention_heads=3, num_key_value_heads=1, intermediate_size=40, max_position_embeddings=64,
        initializer_range=0.1,
    )  # fmt: skip
    adapted = AdaptedModel(base.to(dtype), ("q_proj", "v_proj", "o_proj", "up_proj", "down_proj"), 4, 8, 8.0)
    adapted.bank.initialise(0, RANKS)
    for slot, rank in enumerate(RANKS):
        for a, b in adapted.bank.factors.values():
            a[slot, :rank] += 0.3 * torch.randn(rank, a.shape[2])
            b[slot, :, :rank] += 0.3 * torch.randn(b.shape[1], rank)
    adapted.bank.alphas[:] = torch.tensor([4.0, 12.0, 3.0, 4.0])
    adapted.bank.sync()
    return adapted


def prompts() -> Packed:
    return pack([PromptGroup(slot, list(range(2, 9 + 3 * at))) for at, slot in enumerate(SLOTS)])


def mixture(adapted: AdaptedModel, slots: tuple[int, ...] = SLOTS) -> SlotWeights:
    tokens = torch.tensor([slot for at, slot in enumerate(slots) for _ in range(7 + 3 * at)])
    return SlotWeights(adapted.bank.weights()[tokens])


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 0.05)])
def test_weighed_adapters_are_those_of_the_segments(dtype, tolerance):
    adapted, packed = adapted_model(dtype), prompts()
    with torch.inference_mode():
        expected = adapted.forward(packed.ids, packed.positions, packed.segments, packed.plan)
        weighed = adapted.forward(packed.ids, packed.positions, mixture(adapted), packed.plan)
        other = adapted.forward(packed.ids, packed.positions, mixture(adapted, (-1, 0, 0, 1, 3, 2)), packed.plan)
    assert float((weighed - expected).float().norm() / expected.float().norm()) < tolerance
    changed = (other - weighed).abs().amax(1) > 0.05
    assert changed[-41:].any() and not changed[:-41].any()


@pytest.mark.parametrize("rank", [32, 24])
def test_in_bfloat16_an_adapter_weighs_what_the_learner_gives_it_whatever_its_rank(rank):
    """64 / 24 is no number of bfloat16: rounded to one, all that the adapter adds would be 0.2 % too large."""
    adapted = AdaptedModel(random_qwen2(hidden_size=64).to(torch.bfloat16), ("q_proj",), 2, rank, 64.0)
    adapted.bank.initialise(0)
    adapted.bank.master.normal_(generator=torch.Generator().manual_seed(0))
    adapted.bank.sync()
    linears, segments = adapted.backbone.layers[0].self_attn.q_proj.shared, SegmentMap.build([0, 1], [32, 32])
    for parameter in linears.linears[0].parameters():
        parameter.zero_()
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    weights = adapted.bank.weights()[[0] * 32 + [1] * 32]
    with torch.inference_mode():
        (expected,), _ = linears.forward_rows(x, segments, adapted.bank.scale(segments))
        (weighed,) = linears.weighted_rows(x, weights)
    expected, weighed = expected.double(), weighed.double()
    assert float((expected * weighed).sum() / expected.square().sum()) == pytest.approx(1.0, abs=3e-4)
