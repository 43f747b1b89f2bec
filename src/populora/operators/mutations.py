"""Mutations M1 to M4: one parent, one child of the same rank (paper, appendix "Full LoRA Operator Catalog").

Deviations: dead components are revived by default (`populora.lora.svd`); M1 also offers the exact Cayley rotation, because the
paper's first-order one is not near-orthogonal at rank 32 and epsilon 0.1 (it lengthens the delta by about a sixth); M2 changes at
least one module when its fraction is above 0; standard deviations divide by the number of elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from populora.lora.adapter import Adapter
from populora.lora.svd import Refactor, Spectrum
from populora.operators.controls import copy_parent
from populora.operators.modulewise import expect, on_components, on_factors


def svd_structured(
    parents: Sequence[Adapter],
    rng: np.random.Generator,
    *,
    refactor: Refactor = "revive",
    epsilon: float = 0.1,
    rotation: str = "first_order",
) -> Adapter:
    """M1. Singular values times ``exp(epsilon z)``, singular vectors times ``I + epsilon K`` (or its exact Cayley form).

    z is standard normal, ``K = (M - M^T) / 2`` with standard normal M, drawn for u and v separately.
    """
    expect(epsilon >= 0, "epsilon", "0 or more", epsilon)
    expect(rotation in ("first_order", "cayley"), "rotation", "'first_order' or 'cayley'", rotation)

    def change(parent: Spectrum) -> Spectrum:
        scale = torch.exp(epsilon * _normal(rng, len(parent.s)))
        turn_u, turn_v = (_rotation(rng, len(parent.s), epsilon, exact=rotation == "cayley") for _ in "uv")
        return Spectrum(parent.u @ turn_u, parent.s * scale, parent.v @ turn_v)

    return on_components(parents, rng, refactor, change)


def layer_gaussian(parents: Sequence[Adapter], rng: np.random.Generator, *, epsilon: float = 0.1, fraction: float = 0.33) -> Adapter:
    """M2. Gaussian noise as in M4 on ``round(fraction x modules)`` modules drawn without replacement; the rest is copied."""
    expect(0 <= fraction <= 1, "fraction", "a share from 0 to 1", fraction)
    (parent,) = parents
    names = sorted(parent.modules)
    count = max(1, round(fraction * len(names))) if fraction > 0 else 0
    chosen = [names[index] for index in sorted(rng.choice(len(names), size=count, replace=False))]
    noisy = full_gaussian([replace(parent, modules={name: parent.modules[name] for name in chosen})], rng, epsilon=epsilon)
    return replace(parent, modules=copy_parent(parents, rng).modules | noisy.modules)


def component_masking(
    parents: Sequence[Adapter], rng: np.random.Generator, *, refactor: Refactor = "revive", fraction: float = 0.3
) -> Adapter:
    """M3. ``ceil(fraction x rank)`` singular values per module, drawn uniformly, become 0."""
    expect(0 <= fraction <= 1, "fraction", "a share from 0 to 1", fraction)

    def change(parent: Spectrum) -> Spectrum:
        rank = len(parent.s)
        count = math.ceil(round(fraction * rank, 9))  # 0.1 * 30 is 3.0000000000000004
        s = parent.s.clone()
        s[torch.from_numpy(rng.choice(rank, size=count, replace=False))] = 0.0
        return parent._replace(s=s)

    return on_components(parents, rng, refactor, change)


def full_gaussian(parents: Sequence[Adapter], rng: np.random.Generator, *, epsilon: float = 0.15) -> Adapter:
    """M4. Every A and B plus normal noise of standard deviation ``epsilon x std`` of that tensor: none on ``B = 0``."""
    expect(epsilon >= 0, "epsilon", "0 or more", epsilon)

    def noisy(tensor: torch.Tensor) -> torch.Tensor:
        return tensor + _normal(rng, *tensor.shape) * (epsilon * tensor.std(correction=0))

    return on_factors(parents, lambda pair: (noisy(pair[0]), noisy(pair[1])))


def _rotation(rng: np.random.Generator, rank: int, epsilon: float, exact: bool) -> torch.Tensor:
    m = _normal(rng, rank, rank)
    k, one = (m - m.T) / 2, torch.eye(rank)
    return torch.linalg.solve(one - epsilon / 2 * k, one + epsilon / 2 * k) if exact else one + epsilon * k


def _normal(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))
