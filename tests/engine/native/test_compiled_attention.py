"""Attention in C is the attention of the formula, and its gradient that of autograd in float64, whatever the lengths, heads and threads."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import random_qwen2, random_rows, randomise

from populora.core.config import LearnerConfig
from populora.engine.learning.learner import InProcessLearner
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.packing import PromptGroup
from populora.engine.native.attention import CompiledAttention
from populora.engine.native.compiled import load

functions = load()
pytestmark = pytest.mark.skipif(isinstance(functions, str), reason=f"attention in C: {functions}")
Spans = list[list[int]]


def tensors(tokens: int, heads: int, kv_heads: int, size: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(tokens)
    shapes = [(tokens, count, size) for count in (heads, kv_heads, kv_heads, heads)]
    return [torch.randn(shape, generator=draw) for shape in shapes]


def visible(spans: Spans) -> torch.Tensor:
    """Return which tokens [N, N] a token sees: its prompt, and those up to itself in its own span."""
    seen = torch.zeros(sum(map(sum, spans)), sum(map(sum, spans)), dtype=torch.bool)
    start = 0
    for prompt, *responses in spans:
        places = np.cumsum([start, prompt, *responses])
        for first, end in pairwise(places):
            seen[first:end, first:end] = torch.ones(end - first, end - first).tril().bool()
            seen[first:end, start : start + prompt] |= bool(first > start) | seen[first:end, start : start + prompt]
        start = int(places[-1])
    return seen


def formula(spans: Spans, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    repeats = q.shape[1] // k.shape[1]
    scores = torch.einsum("ihd,jhd->hij", q, k.repeat_interleave(repeats, 1)) / math.sqrt(q.shape[2])
    shares = scores.masked_fill(~visible(spans), -torch.inf).softmax(2)
    return torch.einsum("hij,jhd->ihd", shares, v.repeat_interleave(repeats, 1))


def compute(spans: Spans, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Return the output and the gradients of q, k and v."""
    *leaves, gradient = (x.clone() for x in inputs)
    for leaf in leaves:
        leaf.requires_grad_()
    if inputs[0].dtype == torch.float64:
        output = formula(spans, *leaves)
    else:
        output = CompiledAttention(spans, functions).attend(0, *leaves, inputs[0].shape[2] ** -0.5)
    output.backward(gradient)
    return [output.detach(), *(leaf.grad for leaf in leaves)]


def check(spans: Spans, heads: int, kv_heads: int, size: int) -> None:
    inputs = tensors(sum(map(sum, spans)), heads, kv_heads, size)
    for ours, exact in zip(compute(spans, *inputs), compute(spans, *(x.double() for x in inputs)), strict=True):
        assert float((ours - exact).abs().max()) < 3e-6 * max(1.0, float(exact.abs().max()))  # gradients cancel to nothing for one token


@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (3, 1)])
def test_output_and_gradients_are_those_of_the_formula(size, heads, kv_heads):
    check([[40, 7, 33, 1, 0, 65], [3], [1, 5], [31, 32, 64]], heads, kv_heads, size)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 70), st.lists(st.integers(0, 70), max_size=4)), min_size=1, max_size=3))
def test_any_lengths(groups):
    check([[prompt, *responses] for prompt, responses in groups], 2, 1, 32)


def test_a_token_sees_no_later_token_and_no_other_response():
    """A change of what a token must not see changes no bit of its output."""
    spans = [[20, 40, 50], [30, 10]]
    q, k, v, gradient = tensors(150, 2, 2, 32)
    before = compute(spans, q, k, v, gradient)[0]
    k[45], v[45] = 9.0, 9.0  # in the first response
    changed = (compute(spans, q, k, v, gradient)[0] != before).flatten(1).any(1)
    assert changed.tolist() == visible(spans)[:, 45].tolist() and changed.sum() == 15


def test_bytes_do_not_depend_on_the_number_of_threads(monkeypatch):
    spans = [[40, 7, 33], [3], [1, 5], [31, 32, 64]]
    inputs = tensors(sum(map(sum, spans)), 4, 2, 32)
    expected = compute(spans, *inputs)
    for threads in (2, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert all(map(torch.equal, compute(spans, *inputs), expected))


def test_large_scores_do_not_overflow():
    q, k, v, gradient = tensors(40, 1, 1, 32)
    inputs = (40 * q, 40 * k, v, gradient)
    ours, exact = compute([[20, 20]], *inputs), compute([[20, 20]], *(x.double() for x in inputs))
    assert all(bool(x.isfinite().all()) for x in ours) and float((ours[0] - exact[0]).abs().max()) < 1e-2  # scores of thousands err by 1e-3


@pytest.mark.parametrize("checkpointing", ["none", "layer"])
def test_a_learner_updates_as_with_torch(checkpointing):
    def update(kernels: str) -> tuple[torch.Tensor, dict]:
        base = random_qwen2(hidden_size=64, num_attention_heads=2, num_key_value_heads=1)
        adapted = randomise(AdaptedModel(base, ("q_proj", "k_proj", "v_proj", "o_proj"), 2, 4, 8.0, checkpointing, kernels))
        assert adapted.computation["attention"].startswith("C (" if kernels == "auto" else "torch (base.kernels")
        learner = InProcessLearner(adapted, LearnerConfig(learning_rate=1e-3, micro_batch_tokens=200), agreement=torch.inf)
        learner.update(random_rows(3, {0: 4, 1: 3}, 20))
        return adapted.bank.gradient.clone(), adapted.pack([PromptGroup(0, [1, 2])]).plan.__class__.__name__

    (ours, plan), (theirs, other) = update("auto"), update("torch")
    assert float((ours - theirs).norm() / theirs.norm()) < 3e-6
    assert (plan, other) == ("CompiledAttention", "PackedAttention")


def test_narrow_heads_are_left_to_torch():
    adapted = AdaptedModel(random_qwen2(head_dim=12), ("q_proj",), 1, 2, 4.0)
    assert "these have 12" in adapted.computation["attention"]
    assert adapted.pack([PromptGroup(0, [1, 2])]).plan.__class__.__name__ == "PackedAttention"
