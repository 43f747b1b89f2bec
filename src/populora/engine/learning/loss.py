"""PPO's clipped policy loss per token (Schulman et al. 2017) with separate bounds (DAPO's clip-higher), and its diagnostics.

The old log-probabilities are the sampler's own (sampler and learner read the same weights) or computed anew by the learner. Either
way a token's weight learner / sampler is truncated: an engine of another precision may find a token far less likely.
"""

from __future__ import annotations

import torch


def policy_loss(
    logprobs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, clip_low: float, clip_high: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss per token, max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)) with r = exp(new - old), and where the clip was active."""
    ratio = (logprobs - old).exp()
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    return torch.maximum(plain, clipped), (clipped > plain).detach()


def truncation(logprobs: torch.Tensor, old: torch.Tensor, sampled: torch.Tensor, cap: float) -> torch.Tensor:
    """Constant factor per token that makes the ratio of `policy_loss` the truncated importance weight min(new / sampler, cap)."""
    new = logprobs.detach()
    return (new - sampled).exp().clamp(max=cap) / (new - old).exp()


def divergence(gap: torch.Tensor) -> torch.Tensor:
    """Estimate per token of KL(sampler || learner), exp(d) - 1 - d with d = learner - sampler: never negative (Schulman's k3)."""
    return gap.expm1() - gap
