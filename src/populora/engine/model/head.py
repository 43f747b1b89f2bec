"""Log-probabilities of chosen tokens under a frozen output head, without tokens x vocabulary in memory.

The forward computes the gradient of log p(token) to the hidden state, W[token] - sum_v p(v) W[v], chunk by chunk. The backward only
scales it. That is exact for any loss of the chosen tokens' log-probabilities, as long as the head is frozen.
"""

from typing import Any

import torch

from populora.engine.model.products import faster_products, multiply
from populora.engine.planning.memory import CHUNK

CHUNK_ELEMENTS = {"cpu": 1 << 23, "cuda": CHUNK}
"""Tokens x vocabulary of a chunk: 32 MiB of fp32 logits on a CPU (fewer read the head too often, more waste memory), 512 MiB on a GPU."""


class _ChosenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor) -> Any:
        logprobs = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
        entropies = torch.empty_like(logprobs)
        slopes = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        size = max(1, min(len(hidden), CHUNK_ELEMENTS[hidden.device.type] // len(weight)))
        space = logprobs.new_empty(2, size, len(weight))
        for start in range(0, len(hidden), size):
            chunk = slice(start, min(start + size, len(hidden)))
            slope = None if slopes is None else slopes[chunk]
            work = space[:, : chunk.stop - start]
            logprobs[chunk], entropies[chunk] = _chunk_logprobs(hidden[chunk], weight, bias, targets[chunk], slope, work)
        if slopes is not None:
            ctx.save_for_backward(slopes)
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (slopes,) = ctx.saved_tensors
        return slopes * grads[0][:, None].to(slopes.dtype), None, None, None


def _chunk_logprobs(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    targets: torch.Tensor,
    slope: torch.Tensor | None,
    space: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute log-probabilities and entropies of a chunk of n tokens. The gradient of the former to ``hidden`` goes into ``slope``.

    ``space`` [2, n, V] is reused working memory, because newly allocated memory is slow on first touch.
    """
    logits, exponentials = space
    if weight.dtype == logits.dtype and not faster_products(hidden):
        torch.mm(hidden, weight.T, out=logits)
        if bias is not None:
            logits += bias
    else:
        logits.copy_(multiply(hidden, weight, bias))
    chosen, peak = logits.gather(1, targets[:, None]), logits.amax(-1, keepdim=True)
    torch.exp(logits.sub_(peak), out=exponentials)
    total = exponentials.sum(-1, keepdim=True)
    if slope is not None:
        expected = multiply(exponentials.to(weight.dtype), weight.T) / total.to(weight.dtype)  # sum over v of p(v) W[v]
        torch.sub(weight[targets], expected, out=slope)
    mean = logits.mul_(exponentials).sum(-1, keepdim=True) / total  # of the logit below its peak
    return (chosen - peak - total.log())[:, 0], (total.log() - mean)[:, 0]


def chosen_logprobs(head: torch.nn.Linear, hidden: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute log-probabilities (nats, differentiable) and entropies (constant), both [M] fp32, of hidden [M, d] and targets [M]."""
    return _ChosenLogprobs.apply(hidden, head.weight, head.bias, targets)  # type: ignore[return-value]
