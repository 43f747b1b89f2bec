"""Apply a change to an adapter module by module, in factor space or on singular components.

Draws are made in the alphabetical order of module names, so a child does not depend on the order in which a file lists them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch

from populora.adapters.adapter import Adapter, Factors
from populora.adapters.svd import Refactor, Spectrum, double_qr_svd, recombine, revive
from populora.core.errors import ConfigError


def on_factors(parents: Sequence[Adapter], change: Callable[..., Factors]) -> Adapter:
    """Return the child whose modules are ``change(*pairs)``, one ``(A, B)`` pair per parent. ``change`` must return new tensors."""
    first = parents[0]
    changed = {name: change(*(parent.modules[name] for parent in parents)) for name in sorted(first.modules)}
    return replace(first, modules={name: changed[name] for name in first.modules})


def on_tensors(parents: Sequence[Adapter], change: Callable[..., torch.Tensor]) -> Adapter:
    """Return the child whose every A and B is ``change(*tensors)``, one tensor per parent. ``change`` must return a new tensor."""
    return on_factors(parents, lambda *pairs: (change(*(a for a, _ in pairs)), change(*(b for _, b in pairs))))


def on_components(
    parents: Sequence[Adapter], rng: np.random.Generator, how: Refactor, change: Callable[..., Sequence[Spectrum]]
) -> Adapter:
    """Return the child whose modules have the components ``change(*spectra)``, one `Spectrum` per parent."""
    names = sorted(parents[0].modules)
    spectra = [double_qr_svd([parent.modules[name] for name in names]) for parent in parents]
    return from_components(parents[0], (change(*of_module) for of_module in zip(*spectra, strict=True)), rng, how)


def from_components(model: Adapter, parts: Iterable[Sequence[Spectrum]], rng: np.random.Generator, how: Refactor) -> Adapter:
    """Return the child of ``model``'s form with these components, module by module in alphabetical order.

    Dead components are revived when all modules are made: with and without it, operators see the same draws and give the same delta.
    """
    made = {name: recombine(components) for name, components in zip(sorted(model.modules), parts, strict=True)}
    if how == "revive":
        for a, _, dead in made.values():
            revive(a, dead, rng)
    return replace(model, modules={name: made[name][:2] for name in model.modules})


def expect(holds: bool, strength: str, wanted: str, value: float | str) -> None:
    """Raise `ConfigError` for an impossible strength."""
    if not holds:
        raise ConfigError(f"operator strength '{strength}': expected {wanted}, got {value!r}")
