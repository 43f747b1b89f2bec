"""How operators walk over an adapter: module by module, in factor space or on singular components.

Draws are made in the alphabetical order of module names, so a child does not depend on the order in which a file lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from populora.errors import ConfigError
from populora.lora.adapter import Adapter, Factors
from populora.lora.svd import Refactor, Spectrum, recombine, revive

HEAP = 31 << 20
"""Bytes. glibc hands every freed temporary back to the system, and has its pages made anew for the next one, until it has once seen
a large block freed. One that is never touched costs nothing and takes a third off an operator's time."""


def on_factors(parents: Sequence[Adapter], change: Callable[..., Factors]) -> Adapter:
    """The child whose modules are ``change(*pairs)``, one ``(A, B)`` pair per parent. ``change`` must return new tensors."""
    torch.empty(HEAP, dtype=torch.uint8)
    first = parents[0]
    changed = {name: change(*(parent.modules[name] for parent in parents)) for name in sorted(first.modules)}
    return replace(first, modules={name: changed[name] for name in first.modules})


def on_tensors(parents: Sequence[Adapter], change: Callable[..., torch.Tensor]) -> Adapter:
    """The child whose every A and B is ``change(*tensors)``, one tensor per parent. ``change`` must return a new tensor."""
    return on_factors(parents, lambda *pairs: (change(*(a for a, _ in pairs)), change(*(b for _, b in pairs))))


def on_components(
    parents: Sequence[Adapter], rng: np.random.Generator, how: Refactor, change: Callable[..., Sequence[Spectrum]]
) -> Adapter:
    """The child whose modules are made from the components ``change(*pairs)``, one ``(A, B)`` pair per parent.

    Dead components are revived when all modules are made: with and without it, operators see the same draws and give the same delta.
    """
    dead: list[torch.Tensor] = []

    def made(*pairs: Factors) -> Factors:
        a, b, gone = recombine(change(*pairs))
        dead.append(gone)
        return a, b

    child = on_factors(parents, made)
    if how == "revive":
        for name, gone in zip(sorted(child.modules), dead, strict=True):
            revive(*child.modules[name], gone, rng)
    return child


def expect(holds: bool, strength: str, wanted: str, value: float | str) -> None:
    """Raise `ConfigError` for an impossible strength."""
    if not holds:
        raise ConfigError(f"operator strength '{strength}': expected {wanted}, got {value!r}")
