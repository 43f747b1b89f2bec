"""Log-probabilities of chosen tokens under a frozen output head, without tokens x vocabulary in memory.

The gradient of log p(token) to the hidden state, W[token] - sum_v p(v) W[v], is made in the forward, chunk by chunk; the
backward only scales it. That is exact for any loss of the chosen tokens' log-probabilities, as long as the head is frozen.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

CHUNK_ELEMENTS = {"cpu": 1 << 23, "cuda": 1 << 27}
"""Tokens x vocabulary at a time: 32 MiB of fp32 logits: fewer would read the head too often, more only take memory; 512 MiB fill a GPU."""


class _ChosenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor) -> Any:
        logprobs = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
        entropies = torch.empty_like(logprobs)
        slopes = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        size = max(1, CHUNK_ELEMENTS[hidden.device.type] // len(weight))
        for start in range(0, len(hidden), size):
            chunk = slice(start, start + size)
            own, wanted = hidden[chunk], targets[chunk]
            logits = F.linear(own, weight, bias).float()
            chosen, peak = logits.gather(1, wanted[:, None]), logits.amax(-1, keepdim=True)
            exponentials = logits.sub_(peak).exp_()  # in place, to need few tensors of this size
            total = exponentials.sum(-1, keepdim=True)
            logprobs[chunk] = (chosen - peak - total.log())[:, 0]
            entropies[chunk] = (total.log() + torch.special.entr(exponentials).sum(-1, keepdim=True) / total)[:, 0]
            if slopes is not None:
                expected = (exponentials.to(weight.dtype) @ weight) / total.to(weight.dtype)  # sum over v of p(v) W[v]
                slopes[chunk] = weight[wanted] - expected
        if slopes is not None:
            ctx.save_for_backward(slopes)
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (slopes,) = ctx.saved_tensors
        return slopes * grads[0][:, None].to(slopes.dtype), None, None, None


def chosen_logprobs(head: torch.nn.Linear, hidden: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities (nats, differentiable) and entropies (constants), both [M] fp32, of hidden [M, d] and targets [M]."""
    return _ChosenLogprobs.apply(hidden, head.weight, head.bias, targets)  # type: ignore[return-value]
