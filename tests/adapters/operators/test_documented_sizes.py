"""The sizes that docs/operators.md states of children by the paper's formulas, at the paper's rank and default strengths."""

import pytest
import torch
from children import Child, child_of

from populora.adapters.adapter import Adapter


def wide(seed: int) -> Adapter:
    generator = torch.Generator().manual_seed(seed)
    pairs = {f"w{index}": (torch.randn(32, 256, generator=generator), torch.randn(256, 32, generator=generator)) for index in range(4)}
    return Adapter(pairs, 32, 64.0)


def bred(operator: str, *seeds: int, **strength) -> Child:
    return child_of([wide(seed) for seed in seeds], operator, **strength)


def test_m1_lengthens_the_delta_by_a_sixth_unless_it_rotates_exactly():
    assert (bred("m1", 1).norm_ratio, bred("m1", 1).cosines[0]) == (pytest.approx(1.16, abs=0.03), pytest.approx(0.86, abs=0.02))
    exact = bred("m1", 1, rotation="cayley")
    assert (exact.norm_ratio, exact.cosines[0]) == (pytest.approx(1.01, abs=0.02), pytest.approx(0.86, abs=0.02))


def test_x1_on_equal_parents_doubles_the_delta_and_turns_it_by_more_than_60_degrees():
    child = bred("x1", 1, 1)
    assert child.norm_ratio == pytest.approx((1 / 0.3 + 1) / 2, rel=0.03)  # 2.17
    assert child.cosines[0] == pytest.approx(2 / (1 / 0.3 + 1), rel=0.03)  # 0.46


def test_x1_in_delta_space_keeps_more_of_equal_parents_than_in_factor_space():
    child = bred("x1", 1, 1, space="delta")
    assert (child.norm_ratio, child.cosines[0]) == (pytest.approx(1.15, abs=0.03), pytest.approx(0.85, abs=0.03))


def test_x4_overshoots_and_x8_keeps_the_length_of_unrelated_factors():
    assert bred("x4", 1, 2).cosines[1] > bred("x4", 1, 2).cosines[0]
    assert bred("x8", 1, 2).norm_ratio == pytest.approx(2 * bred("x5", 1, 2).norm_ratio, rel=0.02)
