"""Measure how far a child is from its parents, on the deltas ``B A`` of whole adapters.

Inner products use ``<B1 A1, B2 A2> = sum((B1^T B2) * (A1 A2^T))``, so no out x in matrix is formed. A product in fp32 that comes
near the ends of its range is made in fp64.

A delta of 0 has no direction (``B = 0`` is common when evolution comes early). Two zero deltas are the same policy: norm ratio
and cosine 1. One zero and one non-zero delta: cosine 0, and norm ratio 0.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from populora.adapters.adapter import Adapter
from populora.adapters.svd import dead_components, double_qr_svd

SAFE = (1e-30, 1e30)
"""The range in which squares in fp32 do not overflow, and underflow only below their rounding."""
SAME = 1e-5
"""Two deltas are equal to fp32 accuracy when their difference is at most this share of the parent's norm."""


class Similarity(NamedTuple):
    """The distance of a child from its parents."""

    norm_ratio: float
    """Norm of the child's delta over the mean of its parents' norms. If these are all zero: 1 if the child's is, too, and else 0."""
    cosines: tuple[float, ...]
    """Cosine between the child's delta and each parent's."""
    effective_rank: float
    """Singular values of the child above fp32 zero, mean over modules; at most the rank."""


def delta_inner(first: Adapter, second: Adapter) -> float:
    """Return the Frobenius inner product of two adapters' deltas over all modules, without alpha / rank."""
    total = 0.0
    for name, (a1, b1) in first.modules.items():
        a2, b2 = second.modules[name]
        total += float((_product(b1.T, b2) * _product(a1, a2.T)).sum())
    return total


def delta_norm(adapter: Adapter) -> float:
    """Return the Frobenius norm of an adapter's delta."""
    return math.sqrt(max(0.0, delta_inner(adapter, adapter)))  # rounding can turn a zero into -1e-12


def delta_cosine(first: Adapter, second: Adapter, norms: tuple[float, float]) -> float:
    """Return the cosine between two adapters' deltas, whose `delta_norm` are ``norms``."""
    return delta_inner(first, second) / (norms[0] * norms[1]) if all(norms) else float(norms[0] == norms[1])


def measure_similarity(child: Adapter, parents: Sequence[Adapter]) -> Similarity:
    """Compare a child with its parents."""
    norm, norms = delta_norm(child), [delta_norm(parent) for parent in parents]
    mean = sum(norms) / len(norms)
    ranks = [int((~dead_components(spectrum.s)).sum()) for spectrum in double_qr_svd(list(child.modules.values()))]
    return Similarity(
        norm_ratio=norm / mean if mean > 0 else float(norm == 0),
        cosines=tuple(delta_cosine(child, parent, (norm, size)) for parent, size in zip(parents, norms, strict=True)),
        effective_rank=sum(ranks) / len(ranks),
    )


def basis_cosine(first: Adapter, second: Adapter) -> float:
    """Return the cosine between all A of two adapters: near 1 if they share a basis (one start, little training), near 0 if entry i of
    the first is unrelated to entry i of the second. Operators that mix factors need a shared basis."""
    inner = sum(float((a.double() * second.modules[name][0]).sum()) for name, (a, _) in first.modules.items())
    norms = [sum(float(a.double().square().sum()) for a, _ in adapter.modules.values()) for adapter in (first, second)]
    return inner / math.sqrt(norms[0] * norms[1]) if min(norms) > 0 else 0.0


def same_adapter(child: Adapter, parent: Adapter, cosine: float) -> bool:
    """Tell whether the factors are equal, or the deltas to fp32 accuracy; ``cosine`` is that of the deltas."""
    pairs = [(pair, parent.modules[name]) for name, pair in child.modules.items()]
    return all(torch.equal(x, y) for factors, parent_factors in pairs for x, y in zip(factors, parent_factors, strict=True)) or (
        cosine > 1 - 1e-6 and _same_delta(child, parent)
    )


def _same_delta(first: Adapter, second: Adapter) -> bool:
    """Compare in fp64, where the inner products of `delta_inner` do not cancel. Zero deltas do not count, as their A may differ."""
    norm, distance = delta_norm(second), 0.0
    for name, (a1, b1) in first.modules.items():
        a2, b2 = second.modules[name]
        a, b = torch.cat([a1, a2]).double(), torch.cat([b1, -b2], dim=1).double()
        distance += float(((b.T @ b) * (a @ a.T)).sum())
    return norm > 0 and math.sqrt(max(0.0, distance)) <= SAME * norm


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Multiply into fp64, by a product in fp32 where that is safe from overflow and underflow."""
    product = left @ right
    return product.double() if SAFE[0] < float(product.abs().amax()) < SAFE[1] else left.double() @ right.double()
