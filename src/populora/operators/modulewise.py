"""How operators walk over an adapter: module by module, in factor space or on singular components.

Draws are made in the alphabetical order of module names, so a child does not depend on the order in which a file lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from populora.errors import ConfigError
from populora.lora.adapter import Adapter, Factors
from populora.lora.svd import Refactor, Spectrum, double_qr_svd, refactor


def on_factors(parents: Sequence[Adapter], change: Callable[..., Factors]) -> Adapter:
    """The child whose modules are ``change(*pairs)``, one ``(A, B)`` pair per parent. ``change`` must return new tensors."""
    first = parents[0]
    changed = {name: change(*(parent.modules[name] for parent in parents)) for name in sorted(first.modules)}
    return replace(first, modules={name: changed[name] for name in first.modules})


def on_components(parents: Sequence[Adapter], rng: np.random.Generator, how: Refactor, change: Callable[..., Spectrum]) -> Adapter:
    """The child whose modules are refactored from ``change(*spectra)``, one `Spectrum` per parent.

    All components are changed before any is refactored: both ways of refactoring then see the same draws and give the same delta.
    """
    first = parents[0]
    spectra = {name: change(*(double_qr_svd(*parent.modules[name]) for parent in parents)) for name in sorted(first.modules)}
    changed = {name: refactor(spectrum, how, rng) for name, spectrum in spectra.items()}
    return replace(first, modules={name: changed[name] for name in first.modules})


def expect(holds: bool, strength: str, wanted: str, value: float | str) -> None:
    """Raise `ConfigError` for an impossible strength."""
    if not holds:
        raise ConfigError(f"operator strength '{strength}': expected {wanted}, got {value!r}")
