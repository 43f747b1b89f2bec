"""Small random adapters for the tests of operators."""

from collections.abc import Callable

import pytest
import torch

from populora.adapters.adapter import Adapter


@pytest.fixture(scope="session")
def make_adapter() -> Callable[..., Adapter]:
    """``make_adapter(seed, modules=12, rank=4, alike=False, zero_b=False)``; ``alike``: every module has the same factors."""

    def make(seed: int, modules: int = 12, rank: int = 4, alike: bool = False, zero_b: bool = False) -> Adapter:
        generator = torch.Generator().manual_seed(seed)
        made = {}
        for index in range(modules):
            if index == 0 or not alike:
                a, b = torch.randn(rank, 7, generator=generator), torch.randn(6, rank, generator=generator)
            made[f"layers.{index}.q_proj"] = (a.clone(), torch.zeros_like(b) if zero_b else b.clone())
        return Adapter(made, rank, 2.0 * rank)

    return make
