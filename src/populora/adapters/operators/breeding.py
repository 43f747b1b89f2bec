"""Breed one child and measure it against its parents: the checked door to the operators.

The measures are on the deltas ``B A`` of the whole adapter and use ``<B1 A1, B2 A2> = sum((B1^T B2) * (A1 A2^T))``, so no
out x in matrix is formed. Where a product in fp32 comes near the ends of its range it is made in fp64.

An operator that is no control and gives a parent again (strength 0, parents that are equal) has done nothing, and is refused unless
copies are allowed. Evolution allows them: there X2 may draw one parent throughout, and its odds are part of the operator.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import torch

from populora.adapters.adapter import Adapter, all_finite
from populora.adapters.operators.registry import Operator, get_operator
from populora.adapters.svd import Refactor, dead_components, double_qr_svd
from populora.core.errors import AdapterError, ConfigError

SAFE = (1e-30, 1e30)
"""Within these no square in fp32 overflows, and what underflows is below its rounding."""
SAME = 1e-5
"""Two deltas are equal to fp32 accuracy when their difference is at most this share of the parent's norm."""


@dataclass(frozen=True)
class Child:
    """A child and how far it is from its parents.

    A delta of 0 has no direction (``B = 0`` is common when evolution comes early). Two zero deltas are the same policy: norm
    ratio and cosine 1. One zero and one non-zero delta: cosine 0, and norm ratio 0 (child zero) or infinity (parents zero).
    """

    adapter: Adapter
    norm_ratio: float
    """Norm of the child's delta over the mean of its parents' norms."""
    cosines: tuple[float, ...]
    """Cosine between the child's delta and each parent's."""
    effective_rank: float
    """Singular values of the child above fp32 zero, mean over modules; at most the rank."""


def breed(
    parents: Sequence[Adapter],
    operator: str,
    rng: np.random.Generator,
    refactor: Refactor = "revive",
    allow_copy: bool = False,
    **strength: float | str,
) -> Child:
    """Apply an operator by name. The parents stay untouched; the same stream gives the same bytes on the same number of threads, wherever
    the parents lie in memory (`populora.adapters.operators.lineage.bred`, through which commands and runs breed, needs no condition).

    Raises `ConfigError` for an unknown operator, refactor or strength, a strength out of range, or a wrong number of parents;
    `AdapterError` for parents that do not fit together, are not fp32, or hold NaN or infinite weights, for such a child, and, unless
    ``allow_copy`` or the operator is a control, for a child that equals a parent.
    """
    chosen = get_operator(operator)
    if refactor not in get_args(Refactor):
        raise ConfigError(f"refactor: expected one of {', '.join(get_args(Refactor))}, got {refactor!r}")
    if len(parents) != chosen.arity:
        raise ConfigError(f"operator '{chosen.name}' takes {chosen.arity} parent(s), got {len(parents)}")
    check_strength(chosen, strength)
    for index, parent in enumerate(parents, start=1):
        _check_fit(f"parent {index}", parent, parents[0])
    parents = [_aligned(parent) for parent in parents]
    adapter = _aligned(chosen.function(parents, rng, **({"refactor": refactor} if chosen.takes_refactor else {}), **strength))
    _check_fit(f"the child of operator '{chosen.name}'", adapter, parents[0])
    child = _measure(adapter, parents)
    if not (allow_copy or chosen.control):
        _check_changed(chosen, child, parents)
    return child


def _aligned(adapter: Adapter) -> Adapter:
    """The same adapter, each factor where torch's allocator puts it, at a multiple of 64 bytes. A tensor that was read from a file or
    made by NumPy begins anywhere, and the last bits of a matrix product depend on where its operands begin."""
    return replace(adapter, modules={name: (a.clone(), b.clone()) for name, (a, b) in adapter.modules.items()})


def parse_strength(text: str) -> tuple[str, float | str]:
    """Name and value of a strength written ``NAME=VALUE``: a number, or the word that it is; which of them it takes, its operator knows.

    Raises `ConfigError`.
    """
    name, _, value = text.partition("=")
    if not (name and value):
        raise ConfigError(f"expected a strength as NAME=VALUE, such as epsilon=0.2, got '{text}'")
    for kind in (int, float):
        with suppress(ValueError):
            return name, kind(value)
    return name, value


def check_strength(operator: Operator, strength: Mapping[str, float | str]) -> None:
    """Raise `ConfigError` for a strength that the operator does not have, or of another kind."""
    defaults = operator.strengths
    for name, value in strength.items():
        if name not in defaults:
            near = difflib.get_close_matches(name, defaults, n=1, cutoff=0.4)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise ConfigError(f"operator '{operator.name}' has no strength '{name}'.{hint} It has: {', '.join(defaults) or 'none'}.")
        wanted = str if isinstance(defaults[name], str) else (int, float)
        if not isinstance(value, wanted) or isinstance(value, bool) or (not isinstance(value, str) and not math.isfinite(value)):
            kind = "a word" if wanted is str else "a finite number"
            raise ConfigError(f"operator '{operator.name}', strength '{name}': expected {kind}, got {value!r}")


def delta_inner(one: Adapter, two: Adapter) -> float:
    """Frobenius inner product of two adapters' deltas over all modules, without alpha / rank."""
    total = 0.0
    for name, (a1, b1) in one.modules.items():
        a2, b2 = two.modules[name]
        total += float((_product(b1.T, b2) * _product(a1, a2.T)).sum())
    return total


def basis_cosine(one: Adapter, two: Adapter) -> float:
    """Cosine between all A of two adapters: near 1 where they share a basis (one start, little training), near 0 where entry i of the
    one has nothing to do with entry i of the other. Operators that mix factors need the former."""
    inner = sum(float((a.double() * two.modules[name][0]).sum()) for name, (a, _) in one.modules.items())
    norms = [sum(float(a.double().square().sum()) for a, _ in adapter.modules.values()) for adapter in (one, two)]
    return inner / math.sqrt(norms[0] * norms[1]) if min(norms) > 0 else 0.0


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """fp64, from a product in fp32 where that is safe from overflow and underflow."""
    product = left @ right
    return product.double() if SAFE[0] < float(product.abs().amax()) < SAFE[1] else left.double() @ right.double()


def _measure(child: Adapter, parents: Sequence[Adapter]) -> Child:
    norm, parent_norms = _norm(child), [_norm(parent) for parent in parents]
    mean = sum(parent_norms) / len(parents)
    ranks = [int((~dead_components(spectrum.s)).sum()) for spectrum in double_qr_svd(list(child.modules.values()))]
    return Child(
        adapter=child,
        norm_ratio=norm / mean if mean > 0 else (1.0 if norm == 0 else math.inf),
        cosines=tuple(_cosine(child, norm, parent, size) for parent, size in zip(parents, parent_norms, strict=True)),
        effective_rank=sum(ranks) / len(ranks),
    )


def _check_changed(operator: Operator, child: Child, parents: Sequence[Adapter]) -> None:
    for index, (parent, cosine) in enumerate(zip(parents, child.cosines, strict=True), start=1):
        if _same_factors(child.adapter, parent) or (cosine > 1 - 1e-6 and _same_delta(child.adapter, parent)):
            raise AdapterError(
                f"operator '{operator.name}' gave a child equal to parent {index} (to fp32 accuracy): choose a higher strength, another "
                "seed or parents that differ; operator 'copy_parent' copies on purpose"
            )


def _same_factors(one: Adapter, two: Adapter) -> bool:
    return all(torch.equal(x, y) for name, pair in one.modules.items() for x, y in zip(pair, two.modules[name], strict=True))


def _same_delta(one: Adapter, two: Adapter) -> bool:
    """In fp64: the inner products of `delta_inner` would cancel to their last digits. Zero deltas do not count, for their A may differ."""
    norm, distance = _norm(two), 0.0
    for name, (a1, b1) in one.modules.items():
        a2, b2 = two.modules[name]
        a, b = torch.cat([a1, a2]).double(), torch.cat([b1, -b2], dim=1).double()
        distance += float(((b.T @ b) * (a @ a.T)).sum())
    return norm > 0 and math.sqrt(max(0.0, distance)) <= SAME * norm


def _norm(adapter: Adapter) -> float:
    return math.sqrt(max(0.0, delta_inner(adapter, adapter)))  # rounding can turn a zero into -1e-12


def _cosine(one: Adapter, norm_one: float, two: Adapter, norm_two: float) -> float:
    if norm_one == 0 or norm_two == 0:
        return 1.0 if norm_one == norm_two else 0.0
    return delta_inner(one, two) / (norm_one * norm_two)


def _check_fit(who: str, adapter: Adapter, model: Adapter) -> None:
    """Raise `AdapterError` unless ``adapter`` is finite fp32 with the rank, alpha, modules and shapes of ``model``."""
    if (adapter.rank, adapter.alpha) != (model.rank, model.alpha):
        raise AdapterError(
            f"{who} has rank {adapter.rank} and alpha {adapter.alpha}, expected {model.rank} and {model.alpha} as in parent 1: "
            "operators need adapters made with equal LoRA settings"
        )
    if not model.modules or adapter.modules.keys() != model.modules.keys():
        odd = sorted(adapter.modules.keys() ^ model.modules.keys())
        detail = f"'{odd[0]}' and {len(odd) - 1} more are in only one of them" if odd else "both are empty"
        raise AdapterError(f"{who} and parent 1 must adapt the same modules, at least one: {detail}")
    for name, pair in adapter.modules.items():
        for letter, tensor, wanted in zip("AB", pair, model.modules[name], strict=True):
            if tensor.shape != wanted.shape:
                raise AdapterError(f"{who}, {letter} of '{name}': expected shape {tuple(wanted.shape)}, got {tuple(tensor.shape)}")
            if tensor.dtype != torch.float32:
                raise AdapterError(f"{who}, {letter} of '{name}': expected float32, got {tensor.dtype}; convert the adapter first")
            if not all_finite(tensor):
                raise AdapterError(f"{who}, {letter} of '{name}' holds NaN or infinite weights: use an earlier checkpoint of it")
