"""Chunked log-probabilities of a frozen head against plain autograd."""

import pytest
import torch

from populora.engine.model import head
from populora.engine.model.head import chosen_logprobs


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


def test_a_head_in_half_precision_gives_what_its_own_logits_say(monkeypatch):
    monkeypatch.setitem(head.CHUNK_ELEMENTS, "cpu", 35)
    generator = torch.Generator().manual_seed(0)
    linear = torch.nn.Linear(6, 11).requires_grad_(False).bfloat16()
    hidden, targets = torch.randn(8, 6, generator=generator).bfloat16(), torch.randint(0, 11, (8,), generator=generator)
    half = hidden.clone().requires_grad_()
    logprobs, entropies = chosen_logprobs(linear, half, targets)
    logprobs.sum().backward()
    exact = hidden.float().requires_grad_()
    log_p = torch.nn.functional.linear(exact, linear.weight.float(), linear.bias.float()).log_softmax(-1)
    log_p.gather(1, targets[:, None]).sum().backward()
    torch.testing.assert_close(logprobs, linear(hidden).float().log_softmax(-1).gather(1, targets[:, None])[:, 0])
    torch.testing.assert_close(entropies, -(log_p.exp() * log_p).sum(-1).detach(), rtol=0.02, atol=0.02)
    torch.testing.assert_close(half.grad.float(), exact.grad, rtol=0.05, atol=0.02)


def test_no_tokens_have_no_log_probabilities():
    logprobs, entropies = chosen_logprobs(torch.nn.Linear(6, 11).requires_grad_(False), torch.randn(0, 6), torch.randint(0, 11, (0,)))
    assert logprobs.shape == entropies.shape == (0,)
