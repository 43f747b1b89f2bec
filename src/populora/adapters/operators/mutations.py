"""Mutations M1 to M6: one parent, one child of the same rank (paper, appendix "Full LoRA Operator Catalog").

Deviations: dead components are revived by default (`populora.adapters.svd`); M1 also offers the exact Cayley rotation, because the
paper's first-order one is not near-orthogonal at rank 32 and epsilon 0.1 (it lengthens the delta by about a sixth); M2 changes at
least one module when its fraction is above 0; standard deviations divide by the number of elements. M6's noise on singular values
may be negative when ``sigma`` is large: the component then changes its sign, so the mean of the children stays what the paper says.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from populora.adapters.adapter import Adapter, Factors
from populora.adapters.operators.modulewise import expect, on_components, on_factors, on_tensors
from populora.adapters.svd import Refactor, Spectrum


def svd_structured(
    parents: Sequence[Adapter],
    rng: np.random.Generator,
    *,
    refactor: Refactor = "revive",
    epsilon: float = 0.1,
    rotation: str = "first_order",
) -> Adapter:
    """M1. Multiply singular values by ``exp(epsilon z)``, singular vectors times ``I + epsilon K`` (or its exact Cayley form).

    z is standard normal, ``K = (M - M^T) / 2`` with standard normal M, drawn for u and v separately.
    """
    expect(epsilon >= 0, "epsilon", "0 or more", epsilon)
    expect(rotation in ("first_order", "cayley"), "rotation", "'first_order' or 'cayley'", rotation)

    def change(parent: Spectrum) -> list[Spectrum]:
        scale = torch.exp(epsilon * _normal(rng, len(parent.s)))
        turn_u, turn_v = (_rotation(rng, len(parent.s), epsilon, exact=rotation == "cayley") for _ in "uv")
        return [parent._replace(left=parent.left @ turn_u, s=parent.s * scale, right=parent.right @ turn_v)]

    return on_components(parents, rng, refactor, change)


def layer_gaussian(parents: Sequence[Adapter], rng: np.random.Generator, *, epsilon: float = 0.1, fraction: float = 0.33) -> Adapter:
    """M2. Add Gaussian noise as in M4 to ``round(fraction x modules)`` modules drawn without replacement; the rest is copied."""
    expect(0 <= fraction <= 1, "fraction", "a share from 0 to 1", fraction)
    (parent,) = parents
    names = sorted(parent.modules)
    count = max(1, round(fraction * len(names))) if fraction > 0 else 0
    selected = [names[index] for index in sorted(rng.choice(len(names), size=count, replace=False))]
    noisy = full_gaussian([replace(parent, modules={name: parent.modules[name] for name in selected})], rng, epsilon=epsilon)
    return replace(parent, modules=copy_parent(parents, rng).modules | noisy.modules)


def component_masking(
    parents: Sequence[Adapter], rng: np.random.Generator, *, refactor: Refactor = "revive", fraction: float = 0.3
) -> Adapter:
    """M3. Set ``ceil(fraction x rank)`` singular values per module, drawn uniformly, to 0."""
    expect(0 <= fraction <= 1, "fraction", "a share from 0 to 1", fraction)

    def change(parent: Spectrum) -> list[Spectrum]:
        rank = len(parent.s)
        count = math.ceil(round(fraction * rank, 9))  # 0.1 * 30 is 3.0000000000000004
        s = parent.s.clone()
        s[torch.from_numpy(rng.choice(rank, size=count, replace=False))] = 0.0
        return [parent._replace(s=s)]

    return on_components(parents, rng, refactor, change)


def full_gaussian(parents: Sequence[Adapter], rng: np.random.Generator, *, epsilon: float = 0.15) -> Adapter:
    """M4. Add to every A and B normal noise of standard deviation ``epsilon x std`` of that tensor: none on ``B = 0``."""
    expect(epsilon >= 0, "epsilon", "0 or more", epsilon)

    def noisy(tensor: torch.Tensor) -> torch.Tensor:
        return _much_normal(rng, tensor.shape).mul_(epsilon * tensor.std(correction=0)).add_(tensor)

    return on_tensors(parents, noisy)


def neftune(parents: Sequence[Adapter], rng: np.random.Generator, *, alpha: float = 10.0) -> Adapter:
    """M5. Add to every A [L, d] noise uniform within ``alpha / sqrt(L d)``; B is copied."""
    expect(alpha >= 0, "alpha", "0 or more", alpha)

    def change(pair: Factors) -> Factors:
        a, b = pair
        bound = alpha / math.sqrt(a.numel())
        noise = torch.from_numpy(rng.random(tuple(a.shape), dtype=np.float32))
        return noise.mul_(2 * bound).sub_(bound).add_(a), b.clone()

    return on_factors(parents, change)


def rank_perturbation(
    parents: Sequence[Adapter], rng: np.random.Generator, *, refactor: Refactor = "revive", k: int = 2, sigma: float = 0.05
) -> Adapter:
    """M6. Set the ``k`` smallest singular values of each module to 0, multiply the others by draws from N(1, sigma)."""
    rank = min(len(a) for a, _ in parents[0].modules.values())
    expect(0 <= k < rank and k == int(k), "k", f"a whole number from 0 to below the rank, {rank}", k)
    expect(sigma >= 0, "sigma", "0 or more", sigma)

    def change(parent: Spectrum) -> list[Spectrum]:
        factor = torch.zeros_like(parent.s)
        kept = len(factor) - int(k)
        factor[:kept] = 1 + sigma * _normal(rng, kept)
        return [parent._replace(s=parent.s * factor)]

    return on_components(parents, rng, refactor, change)


def copy_parent(parents: Sequence[Adapter], rng: np.random.Generator) -> Adapter:
    """Return a copy of the parent that shares no memory with it: the control of mutations. It draws nothing."""
    return on_factors(parents, lambda pair: (pair[0].clone(), pair[1].clone()))


def _rotation(rng: np.random.Generator, rank: int, epsilon: float, exact: bool) -> torch.Tensor:
    m = _normal(rng, rank, rank)
    k, identity = (m - m.T) / 2, torch.eye(rank)
    return torch.linalg.solve(identity - epsilon / 2 * k, identity + epsilon / 2 * k) if exact else identity + epsilon * k


def _normal(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32))


def _much_normal(rng: np.random.Generator, shape: torch.Size) -> torch.Tensor:
    """Draw the standard normal values of M4 by Box and Muller's pairs, faster than NumPy draws them; none is beyond 5.8."""
    pairs = (shape.numel() + 1) // 2
    uniform, angle = torch.from_numpy(rng.random((2, pairs), dtype=np.float32))
    radius = uniform.neg_().add_(1).log_().mul_(-2).sqrt_()  # of 1 - uniform, which is never 0
    angle = angle.mul_(2 * math.pi)
    return torch.cat([angle.cos().mul_(radius), angle.sin_().mul_(radius)])[: shape.numel()].view(shape)
