"""Identity controls: the references of mutations (`copy_parent`) and crossovers (`linear_0_5`). They draw nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from populora.adapters.adapter import Adapter
from populora.adapters.operators.merges import task_arithmetic
from populora.adapters.operators.modulewise import on_factors


def copy_parent(parents: Sequence[Adapter], rng: np.random.Generator) -> Adapter:
    """Return a copy of the parent that shares no memory with it."""
    return on_factors(parents, lambda pair: (pair[0].clone(), pair[1].clone()))


def linear_0_5(parents: Sequence[Adapter], rng: np.random.Generator) -> Adapter:
    """Return the plain mean of the parents' factors: X5 with alpha 0.5."""
    return task_arithmetic(parents, rng, alpha=0.5)
