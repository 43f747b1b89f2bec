"""Merges X5 to X9: two parents' tensors become one, each A and each B by itself (paper, appendix "Full LoRA Operator Catalog").

None is in evolution's default pool. Only X7 draws from its stream. All presume parents whose A share a basis (equal A at birth, reading
27; docs/operators.md says what ends that). Deviations: X7 ranks magnitudes by their leading bits (`_chances_to_stay`); X9's epsilon,
which the paper does not name, is 1e-20: squares of small weights are small.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from populora.adapters.adapter import Adapter
from populora.adapters.operators.modulewise import expect, on_tensors

FLAT = 1e-6
"""Vectors whose angle has a sine below this are parallel to fp32 accuracy, and SLERP is linear."""
SHIFT, BUCKETS = 14, 1 << 14
"""X7 compares by 9 bits of mantissa; its buckets span the 32 octaves below the largest magnitude."""
CHANCES = 1 << 16
"""X7 draws 16 bits an entry, so its probabilities are multiples of 1 / 65536, and then they are met exactly."""


def task_arithmetic(parents: Sequence[Adapter], rng: np.random.Generator, *, alpha: float = 0.5) -> Adapter:
    """X5. Compute ``alpha P1 + (1 - alpha) P2``."""
    expect(0 <= alpha <= 1, "alpha", "a share from 0 to 1", alpha)
    return on_tensors(parents, lambda first, second: torch.lerp(first, second, 1 - alpha))


def linear_0_5(parents: Sequence[Adapter], rng: np.random.Generator) -> Adapter:
    """Return the plain mean of the parents' factors, X5 with alpha 0.5: the control of crossovers."""
    return task_arithmetic(parents, rng, alpha=0.5)


def ties(parents: Sequence[Adapter], rng: np.random.Generator, *, tau: float = 0.2) -> Adapter:
    """X6. Each parent loses the share ``tau`` of smallest magnitudes; the sign of the sum is elected; parents that have it average.

    ``floor(tau n)`` of n entries go, of equal ones the first. Where the sum is zero, the child's entry is zero.
    """
    expect(0 <= tau < 1, "tau", "a share from 0 to below 1", tau)

    def change(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        first, second = _trimmed(first, tau), _trimmed(second, tau)
        sign = (first + second).sign_()
        first, second = (part.mul_(sign).clamp_(min=0) for part in (first, second))  # magnitudes of those that have the elected sign
        voters = first.sign().add_(second.sign()).clamp_(min=1)
        return first.add_(second).mul_(sign).div_(voters)

    return on_tensors(parents, change)


def della(parents: Sequence[Adapter], rng: np.random.Generator, *, epsilon: float = 0.1) -> Adapter:
    """X7. Drop entries with probability p, rescale the rest by 1/(1 - p), and average the parents.

    p grows with the rank of the magnitude within its tensor, from ``epsilon`` for the largest to 1 for the smallest, which is lost.
    """
    expect(0 <= epsilon < 1, "epsilon", "a probability from 0 to below 1", epsilon)

    def thinned(tensor: torch.Tensor) -> torch.Tensor:
        chances = _chances_to_stay(tensor, epsilon)
        words = rng.integers(1 << 64, size=(tensor.numel() + 3) // 4, dtype=np.uint64)  # four draws a word: the faster way
        draws = torch.from_numpy(words.view(np.uint16)[: tensor.numel()].astype(np.float32))
        kept = draws.view(tensor.shape).lt_(chances)
        return kept.mul_(tensor).div_(chances.clamp_(min=1))  # where there is no chance nothing is kept, and 0 / 0 would be NaN

    return on_tensors(parents, lambda first, second: thinned(first).add_(thinned(second)).mul_(CHANCES / 2))


def slerp(parents: Sequence[Adapter], rng: np.random.Generator, *, t: float = 0.5) -> Adapter:
    """X8. Go along the arc from parent 1 (``t`` = 0) to parent 2 (1), each tensor one vector. Linear if one is zero or both parallel."""
    expect(0 <= t <= 1, "t", "a share from 0 to 1", t)

    def change(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        a, b = first.double().flatten(), second.double().flatten()  # fp32 does not know the angle of nearly parallel vectors
        norms = float(a.norm() * b.norm())
        cosine = max(-1.0, min(1.0, float(a @ b) / norms)) if norms > 0 else 1.0
        angle = math.acos(cosine)
        if math.sin(angle) < FLAT:
            return torch.lerp(first, second, t)
        from_first, from_second = (math.sin(share * angle) / math.sin(angle) for share in (1 - t, t))
        return (first * from_first).add_(second, alpha=from_second)

    return on_tensors(parents, change)


def fisher(parents: Sequence[Adapter], rng: np.random.Generator, *, epsilon: float = 1e-20) -> Adapter:
    """X9. Compute ``(F1 P1 + F2 P2) / (F1 + F2 + epsilon)`` with ``F = P^2``, a stand-in for the Fisher information that needs no data."""
    expect(epsilon > 0, "epsilon", "more than 0", epsilon)

    def change(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        first_weight, second_weight = first.square(), second.square()
        whole = (first_weight + second_weight).add_(epsilon)
        return first_weight.mul_(first).add_(second_weight.mul_(second)).div_(whole)

    return on_tensors(parents, change)


def _trimmed(tensor: torch.Tensor, tau: float) -> torch.Tensor:
    """Copy the tensor without its ``floor(tau n)`` smallest magnitudes, found by selection; of equal magnitudes the first go."""
    count = math.floor(tau * tensor.numel() + 1e-9)  # 0.7 * 10 is 6.999999999999999
    if count == 0:
        return tensor.clone()
    magnitude = tensor.abs().contiguous()
    flat = magnitude.view(-1).numpy()
    flat.partition(count - 1)
    threshold = float(flat[count - 1])
    keep = torch.abs(tensor, out=magnitude).gt_(threshold)  # 1 or 0 in the tensor's own type, which multiplies faster than a mask
    spare = tensor.numel() - count - int(keep.sum(dtype=torch.float64))
    if spare > 0:
        tied = (tensor.abs() == threshold).flatten().nonzero().squeeze(1)
        keep.view(-1)[tied[len(tied) - spare :]] = 1
    return keep.mul_(tensor)


def _chances_to_stay(tensor: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Return ``1 - p`` in units of 1 / `CHANCES`, with ``p = epsilon + (1 - epsilon) rank / (n - 1)`` by magnitude, the largest first.

    Instead of being sorted, entries are counted in buckets by the leading bits of their magnitudes. Those in one bucket, which
    differ by less than 2^-9 of themselves or are below 2^-31 of the largest, share their mean rank. So p is off by at most half
    of its bucket's share of the tensor (6e-4 for 100,000 normal entries), and entries of equal magnitude have equal chances. A non-zero
    chance is at least one unit. The tensor must be fp32.
    """
    bits = tensor.abs().view(torch.int32).flatten().bitwise_right_shift_(SHIFT)  # not negative: floats are ordered as their bits
    low, high = (int(end) for end in bits.aminmax())
    bucket = bits.sub_(max(low, high - (BUCKETS - 1))).clamp_(min=0)
    counts = torch.bincount(bucket).float()
    smaller = counts.cumsum(0).sub_(counts, alpha=0.5).sub_(0.5)  # entries below the middle of each bucket
    chances = smaller.mul_(CHANCES * (1 - epsilon) / max(1, tensor.numel() - 1)).ceil_()
    return chances.index_select(0, bucket).view(tensor.shape)
