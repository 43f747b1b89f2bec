"""Activation checkpointing: the same gradients. What is kept instead is in planning/test_memory.py."""

import pytest
import torch
from small_models import random_qwen2, randomise

from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.packing import PromptGroup, pack


def made(checkpointing) -> AdaptedModel:
    base = random_qwen2(vocab_size=64, num_hidden_layers=3, intermediate_size=256)
    return randomise(AdaptedModel(base, ("q_proj", "v_proj", "o_proj", "up_proj", "down_proj"), 3, 4, 8.0, checkpointing))


def learned(adapted: AdaptedModel) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and gradient."""
    draw = torch.Generator().manual_seed(1)
    rows = [torch.randint(2, 64, (30 + 5 * slot,), generator=draw).tolist() for slot in range(3)]
    packed = pack([PromptGroup(slot, row[:10], (row[10:20], row[20:])) for slot, row in enumerate(rows)])
    logprobs, _ = adapted.logprobs(packed)
    logprobs.sin().sum().backward()
    return logprobs.detach(), adapted.bank.gradient


@pytest.mark.parametrize("checkpointing", ["mlp", "layer"])
def test_outputs_and_gradients_are_the_same(checkpointing):
    (logprobs, gradient), (again, recomputed) = learned(made("none")), learned(made(checkpointing))
    assert torch.equal(again, logprobs)
    torch.testing.assert_close(recomputed, gradient, rtol=1e-5, atol=1e-7)


def test_the_route_of_another_forward_does_not_reach_a_recomputed_layer():
    """A second forward between the first and its backward must not change what is recomputed."""
    adapted, plain = made("layer"), made("none")
    first, second = pack([PromptGroup(0, [5, 6, 7], ([8, 9, 10],))]), pack([PromptGroup(2, [4, 3, 2, 9], ([11, 12],))])
    without_gradients = []
    for model in (adapted, plain):
        logprobs, _ = model.logprobs(first)
        with torch.no_grad():
            without_gradients.append(model.logprobs(second)[0])
        logprobs.sum().backward()
    torch.testing.assert_close(*without_gradients)
    torch.testing.assert_close(adapted.bank.gradient, plain.bank.gradient, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("slots", [(0, 1), (0, 0), (-1, 2)])
def test_two_forwards_may_go_before_one_backward(slots):
    """Micro-batches in any order: the outputs kept for siblings belong to one input."""
    adapted, other = made("none"), made("none")
    packs = [pack([PromptGroup(slot, [5, 6, 7 + at], ([8, 9],))]) for at, slot in enumerate(slots)]
    torch.stack([adapted.logprobs(packed)[0].sum() for packed in packs]).sum().backward()
    for packed in packs:
        if packed.segments.counts:
            other.logprobs(packed)[0].sum().backward()
    torch.testing.assert_close(adapted.bank.gradient, other.bank.gradient)
