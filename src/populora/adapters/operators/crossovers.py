"""Crossovers X1 to X4: two parents, one child of the same rank (paper, appendix "Full LoRA Operator Catalog"). And `soup`, which the paper
does not have.

X4, and X1 in factor space, mix the factors themselves, so they presume parents whose A share a basis (equal A at birth, reading 27;
docs/operators.md says what ends that). The order of the parents matters for X3 and X4. Readings: X1 averages (the appendix; the body's
sum would double the delta), X3 draws k per module.
"""

from collections.abc import Sequence
from math import isfinite

import numpy as np
import torch

from populora.adapters.adapter import Adapter, Factors
from populora.adapters.operators.modulewise import expect, from_components, on_components, on_factors, on_tensors
from populora.adapters.svd import Refactor, Spectrum, double_qr_svd, truncated_svd
from populora.core.errors import AdapterError


def dare(
    parents: Sequence[Adapter], rng: np.random.Generator, *, refactor: Refactor = "revive", drop: float = 0.7, space: str = "factor"
) -> Adapter:
    """X1. Drop entries with probability ``drop``, rescale the rest by 1/(1 - drop), and average the parents.

    In ``factor`` space (paper) the entries are those of the four factors. A and B are dropped independently: each factor keeps
    its mean, yet the delta of a child is noisy and longer than its parents'. In ``delta`` space they are those of each module's
    dense deltas, as DARE was meant; of the result the child has the best approximation of its rank (`truncated_svd`). Each dense
    delta is formed, one module at a time: tens of seconds for a large adapter. Nothing is formed where ``drop`` is 0.
    """
    expect(0 <= drop < 1, "drop", "a probability from 0 to below 1", drop)
    expect(space in ("factor", "delta"), "space", "'factor' or 'delta'", space)

    def dropped(tensor: torch.Tensor) -> torch.Tensor:
        keep = torch.from_numpy(rng.random(tuple(tensor.shape), dtype=np.float32)).ge_(drop)
        return keep.mul_(tensor).div_(1.0 - drop)

    def mix_factors(first: Factors, second: Factors) -> Factors:
        (a1, b1), (a2, b2) = ((dropped(a), dropped(b)) for a, b in (first, second))
        return a1.add_(a2).div_(2), b1.add_(b2).div_(2)

    if space == "factor":
        return on_factors(parents, mix_factors)
    if drop == 0:
        return soup(parents, rng, refactor=refactor)
    pairs = [(parents[0].modules[name], parents[1].modules[name]) for name in sorted(parents[0].modules)]
    dense = ((dropped(b1 @ a1).add_(dropped(b2 @ a2)).div_(2), len(a1)) for (a1, b1), (a2, b2) in pairs)
    return from_components(parents[0], ([truncated_svd(delta, rank, rng)] for delta, rank in dense), rng, refactor)


def soup(parents: Sequence[Adapter], rng: np.random.Generator, *, refactor: Refactor = "revive") -> Adapter:
    """Average the deltas of any number of parents (a uniform soup, Wortsman et al. 2022), and keep the best approximation of their rank.

    The factors need no common basis. No dense delta is formed: the mean of n deltas is one of n times the rank.
    """
    wide = [mean_delta([parent.modules[name] for parent in parents]) for name in sorted(parents[0].modules)]
    parts = ([mean.part(0, len(mean.s) // len(parents))] for mean in double_qr_svd(wide))
    return from_components(parents[0], parts, rng, refactor)


def mean_delta(pairs: Sequence[Factors]) -> Factors:
    """Return factors of the exact mean of n deltas: A [n r, in] and B [out, n r]."""
    return torch.cat([a for a, _ in pairs]), torch.cat([b for _, b in pairs], dim=1) / len(pairs)


def layer_wise(parents: Sequence[Adapter], rng: np.random.Generator) -> Adapter:
    """X2. Take A and B of each module together from one of the parents, by a fair coin."""

    def change(*pairs: Factors) -> Factors:
        a, b = pairs[rng.integers(2)]
        return a.clone(), b.clone()

    return on_factors(parents, change)


def svd_subspace(parents: Sequence[Adapter], rng: np.random.Generator, *, refactor: Refactor = "revive") -> Adapter:
    """X3. Join the first k components of parent 1 and components k to r of parent 2, k uniform in 1..r-1 for each module.

    The composed vectors are not orthonormal (paper). Raises `AdapterError` for rank 1, which has no such k.
    """
    if min(len(a) for a, _ in parents[0].modules.values()) < 2:
        raise AdapterError("operator x3 splits the components of two parents: expected rank 2 or more, got 1; use another crossover")

    def change(first: Spectrum, second: Spectrum) -> list[Spectrum]:
        k = int(rng.integers(1, len(first.s)))
        return [first.part(0, k), second.part(k, None)]

    return on_components(parents, rng, refactor, change)


def extrapolative(parents: Sequence[Adapter], rng: np.random.Generator, *, eta_min: float = 1.0, eta_max: float = 1.5) -> Adapter:
    """X4. Compute ``P1 + eta (P2 - P1)`` on A and on B, one eta ~ U(eta_min, eta_max) per call: beyond parent 2; at eta = 1 parent 2."""
    expect(eta_min <= eta_max, "eta_min", f"at most eta_max ({eta_max})", eta_min)
    expect(isfinite(eta_max - eta_min), "eta_max", "a finite distance from eta_min", eta_max)
    eta = rng.uniform(eta_min, eta_max)
    return on_tensors(parents, lambda first, second: torch.lerp(first, second, eta))
