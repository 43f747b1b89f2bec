"""A mutation for populora: every module's delta fades by a factor of its own, drawn uniformly."""

from collections.abc import Sequence

import numpy as np

from populora.adapters.adapter import Adapter, Factors
from populora.adapters.operators import Operator
from populora.adapters.operators.modulewise import expect, on_factors


def fade(parents: Sequence[Adapter], rng: np.random.Generator, *, least: float = 0.8) -> Adapter:
    """B of each module times a draw from U(least, 1); A is copied, so a faded module learns as it did."""
    expect(0 <= least <= 1, "least", "a factor from 0 to 1", least)

    def change(pair: Factors) -> Factors:
        a, b = pair
        return a.clone(), b * float(rng.uniform(least, 1.0))

    return on_factors(parents, change)


FADE = Operator("fade", 1, fade, "every module's delta times a random factor below 1")
