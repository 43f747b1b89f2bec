"""Chunked log-probabilities of a frozen head against plain autograd."""

from __future__ import annotations

import pytest
import torch

from populora.lora import head
from populora.lora.head import chosen_logprobs


@pytest.mark.parametrize("bias", [False, True])
def test_values_and_gradients_equal_the_naive_ones(monkeypatch, bias):
    monkeypatch.setitem(head.CHUNK_ELEMENTS, "cpu", 35)  # three tokens at a time
    generator = torch.Generator().manual_seed(0)
    linear = torch.nn.Linear(6, 11, bias=bias).requires_grad_(False)
    hidden = torch.randn(8, 6, generator=generator).requires_grad_()
    targets = torch.randint(0, 11, (8,), generator=generator)
    upstream = torch.randn(8, generator=generator)
    log_p = linear(hidden).log_softmax(-1)
    expected = log_p.gather(1, targets[:, None])[:, 0]
    logprobs, entropies = chosen_logprobs(linear, hidden, targets)
    torch.testing.assert_close(logprobs, expected)
    torch.testing.assert_close(entropies, -(log_p.exp() * log_p).sum(-1).detach())
    assert not entropies.requires_grad
    ours, naive = (torch.autograd.grad(values, hidden, upstream)[0] for values in (logprobs, expected))
    torch.testing.assert_close(ours, naive, rtol=1e-5, atol=1e-6)
