"""Crossovers X1 to X4: two parents, one child of the same rank (paper, appendix "Full LoRA Operator Catalog").

All but X3 mix the factors themselves, so they presume parents of a shared origin (equal A at birth, reading 27). The order of the
parents matters for X3 and X4. Readings: X1 averages (the appendix; the body's sum would double the delta), X3 draws k per module.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from populora.errors import AdapterError
from populora.lora.adapter import Adapter, Factors
from populora.lora.svd import Refactor, Spectrum
from populora.operators.modulewise import expect, on_components, on_factors


def dare(parents: Sequence[Adapter], rng: np.random.Generator, *, drop: float = 0.7) -> Adapter:
    """X1. Each of the four factors loses its entries with probability ``drop``, is rescaled by 1/(1 - drop), and parents average.

    A and B are dropped independently: each factor keeps its mean, yet the delta of a child is noisy and longer than its parents'.
    """
    expect(0 <= drop < 1, "drop", "a probability from 0 to below 1", drop)

    def dropped(tensor: torch.Tensor) -> torch.Tensor:
        keep = torch.from_numpy(rng.random(tuple(tensor.shape), dtype=np.float32) >= drop)
        return tensor * keep / (1.0 - drop)

    def change(first: Factors, second: Factors) -> Factors:
        (a1, b1), (a2, b2) = ((dropped(a), dropped(b)) for a, b in (first, second))
        return (a1 + a2) / 2, (b1 + b2) / 2

    return on_factors(parents, change)


def layer_wise(parents: Sequence[Adapter], rng: np.random.Generator) -> Adapter:
    """X2. One fair coin per module takes A and B together from one of the parents."""

    def change(*pairs: Factors) -> Factors:
        a, b = pairs[rng.integers(2)]
        return a.clone(), b.clone()

    return on_factors(parents, change)


def svd_subspace(parents: Sequence[Adapter], rng: np.random.Generator, *, refactor: Refactor = "revive") -> Adapter:
    """X3. The first k components of parent 1 and components k to r of parent 2, k uniform in 1..r-1 for each module.

    The composed vectors are not orthonormal (paper). Raises `AdapterError` for rank 1, which has no such k.
    """
    rank = parents[0].rank
    if rank < 2:
        raise AdapterError("operator x3 splits the components of two parents: expected rank 2 or more, got 1; use another crossover")

    def change(first: Spectrum, second: Spectrum) -> Spectrum:
        k = int(rng.integers(1, rank))
        return Spectrum(*(torch.cat([one[..., :k], two[..., k:]], dim=-1) for one, two in zip(first, second, strict=True)))

    return on_components(parents, rng, refactor, change)


def extrapolative(parents: Sequence[Adapter], rng: np.random.Generator, *, eta_min: float = 1.0, eta_max: float = 1.5) -> Adapter:
    """X4. ``P1 + eta (P2 - P1)`` on A and on B, one eta ~ U(eta_min, eta_max) per call: beyond parent 2; at eta = 1 parent 2."""
    expect(eta_min <= eta_max, "eta_min", f"at most eta_max ({eta_max})", eta_min)
    eta = rng.uniform(eta_min, eta_max)
    return on_factors(parents, lambda one, two: (torch.lerp(one[0], two[0], eta), torch.lerp(one[1], two[1], eta)))
