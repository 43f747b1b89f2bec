"""Log-probabilities of chosen tokens under a frozen output head, without tokens x vocabulary in memory.

The gradient of log p(token) to the hidden state, W[token] - sum_v p(v) W[v], is made in the forward, chunk by chunk; the
backward only scales it. That is exact for any loss of the chosen tokens' log-probabilities, as long as the head is frozen.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

CHUNK_ELEMENTS = {"cpu": 1 << 22, "cuda": 1 << 27}
"""Tokens x vocabulary at a time: 16 MiB of fp32 logits, which a processor's caches like; 512 MiB where a product must fill a GPU."""


class _ChosenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor) -> Any:
        logprobs = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
        entropies = torch.empty_like(logprobs)
        slopes = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        size = max(1, CHUNK_ELEMENTS[hidden.device.type] // len(weight))
        for start in range(0, len(hidden), size):
            chunk = slice(start, start + size)
            log_p = F.linear(hidden[chunk], weight, bias).float().log_softmax(-1)
            p = log_p.exp()
            logprobs[chunk] = log_p.gather(1, targets[chunk, None])[:, 0]
            entropies[chunk] = -torch.where(p > 0, p * log_p, 0.0).sum(-1)
            if slopes is not None:
                slopes[chunk] = weight[targets[chunk]] - p.to(weight.dtype) @ weight
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
