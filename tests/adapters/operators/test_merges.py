"""X5 to X9 against PEFT's merging functions, scipy's arc and plain fp64 formulas; what X7 drops and how often."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft.utils import merge_utils
from scipy.spatial import geometric_slerp

from populora.adapters.adapter import Adapter
from populora.adapters.operators import merges
from populora.adapters.operators.merges import della, fisher, linear_0_5, slerp, task_arithmetic, ties
from populora.core.rng import stream


def single(tensor: torch.Tensor) -> Adapter:
    """An adapter whose only module has ``tensor`` [r, in] as its A."""
    return Adapter({"w": (tensor, torch.zeros(1, len(tensor)))}, len(tensor), 1.0)


def merged(operator, *tensors: torch.Tensor, seed: int = 0, **strength) -> torch.Tensor:
    return operator([single(tensor) for tensor in tensors], stream(seed, "merge"), **strength).modules["w"][0]


def pair(seed: int, rows: int = 5, columns: int = 8) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randn(2, rows, columns, generator=generator))


@given(st.integers(0, 10**6), st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_x5_is_pefts_task_arithmetic(seed, alpha):
    first, second = pair(seed)
    wanted = merge_utils.task_arithmetic([first, second], torch.tensor([alpha, 1 - alpha]))
    torch.testing.assert_close(merged(task_arithmetic, first, second, alpha=alpha), wanted, atol=1e-6, rtol=1e-5)


def test_linear_0_5_is_x5_with_alpha_one_half(make_adapter):
    parents = [make_adapter(1), make_adapter(2)]
    first, second = linear_0_5(parents, stream(0, "op")), task_arithmetic(parents, stream(0, "op"), alpha=0.5)
    assert first.fingerprint() == second.fingerprint()


@given(st.integers(0, 10**6), st.sampled_from([0.1, 0.2, 0.5, 0.8]))
@settings(max_examples=30, deadline=None)
def test_x6_is_pefts_ties(seed, tau):
    first, second = pair(seed)
    wanted = merge_utils.ties([first, second], torch.ones(2), density=round(1 - tau, 9))
    torch.testing.assert_close(merged(ties, first, second, tau=tau), wanted)


def ties_by_sorting(first, second, tau):
    """Entry by entry in plain Python, after a stable sort of the magnitudes."""
    kept = []
    for tensor in (first, second):
        flat = tensor.flatten().tolist()
        order = sorted(range(len(flat)), key=lambda index: abs(flat[index]))
        for index in order[: math.floor(tau * len(flat) + 1e-9)]:
            flat[index] = 0.0
        kept.append(flat)
    out = []
    for x, y in zip(*kept, strict=True):
        sign = np.sign(x + y)
        agreeing = [value for value in (x, y) if value * sign > 0]
        out.append(sum(agreeing) / max(1, len(agreeing)))
    return torch.tensor(out).view(first.shape)


@given(st.integers(0, 10**6), st.floats(0, 0.99), st.sampled_from([1.0, 0.5, 0.0]))
@settings(max_examples=60, deadline=None)
def test_x6_is_the_papers_recipe_for_any_share_and_with_equal_magnitudes(seed, tau, grid):
    first, second = ((tensor / grid).round() * grid if grid else tensor for tensor in pair(seed))
    torch.testing.assert_close(merged(ties, first, second, tau=tau), ties_by_sorting(first, second, tau))


def test_x6_takes_the_larger_survivor_where_signs_disagree_and_nothing_where_they_cancel():
    first, second = torch.tensor([[3.0, -1.0, 2.0, 4.0, 5.0]]), torch.tensor([[-1.0, 3.0, -2.0, 2.0, 0.0]])
    assert merged(ties, first, second, tau=0.0).tolist() == [[3.0, 3.0, 0.0, 3.0, 5.0]]
    mask = merge_utils.calculate_majority_sign_mask(torch.stack([first, second]))
    assert merge_utils.disjoint_merge(torch.stack([first, second]), mask).tolist() == [[3.0, 3.0, 2.0, 3.0, 5.0]]  # a tie goes to plus


def exact_probabilities(tensor, epsilon):
    """The paper's formula with the ranks of a sort, in fp64."""
    magnitude = tensor.flatten().abs().numpy()
    rank = np.empty(len(magnitude))
    rank[np.argsort(-magnitude, kind="stable")] = np.arange(len(magnitude))
    return (epsilon + (1 - epsilon) * rank / max(1, len(magnitude) - 1)).reshape(tensor.shape)


SHAPES = {"normal": lambda draws: draws * 1e-3, "cubed": lambda draws: draws**3, "signs": torch.sign}


@pytest.mark.parametrize("shape", SHAPES)
def test_x7_drops_with_the_papers_probabilities_to_half_a_buckets_share(shape):
    tensor = SHAPES[shape](torch.randn(32, 3584, generator=torch.Generator().manual_seed(4)))
    p = 1 - merges._chances_to_stay(tensor, 0.1).double() / merges.CHANCES
    off = (p - torch.from_numpy(exact_probabilities(tensor, 0.1))).abs().flatten()
    values, bucket, members = p.flatten().unique(return_inverse=True, return_counts=True)
    allowed = 0.9 * (members - 1) / 2 / (tensor.numel() - 1)
    assert bool((off <= allowed[bucket] + 1.001 / merges.CHANCES).all())
    assert float(values.min()) >= 0.1 - 1 / merges.CHANCES and float(values.max()) <= 1.0
    if shape == "normal":
        assert float(off.max()) < 6e-4


@given(st.integers(0, 10**6), st.floats(0, 0.9))
@settings(max_examples=40, deadline=None)
def test_x7_probabilities_are_the_papers_where_magnitudes_can_be_told_apart(seed, epsilon):
    rng = np.random.default_rng(seed)
    magnitudes = 1.004 ** rng.permutation(5000)[:40]  # within 32 octaves: 1.004 ** 5000 is 2 ** 28.8
    tensor = torch.from_numpy((magnitudes * rng.choice([-1, 1], 40)).astype(np.float32)).view(5, 8)
    p = 1 - merges._chances_to_stay(tensor, epsilon).double() / merges.CHANCES
    np.testing.assert_allclose(p.numpy(), exact_probabilities(tensor, epsilon), atol=1.001 / merges.CHANCES)
    assert float(p.min()) == pytest.approx(epsilon, abs=2 / merges.CHANCES) and float(p.max()) == 1.0


def test_x7_survivors_are_rescaled_and_the_smallest_never_survives():
    tensor = torch.tensor([[8.0, -4.0, 2.0, -1.0, 0.5]])
    p = torch.from_numpy(exact_probabilities(tensor, 0.1)).float()
    draws = torch.stack([merged(della, tensor, torch.zeros(1, 5), seed=seed) for seed in range(600)]) * 2
    kept = draws != 0
    torch.testing.assert_close(draws[kept], (tensor / (1 - p)).expand_as(draws)[kept], rtol=1e-4, atol=0)
    shares = kept.float().mean(dim=0)
    assert float(shares[0, 4]) == 0.0
    torch.testing.assert_close(shares, 1 - p, atol=0.1, rtol=0)


@pytest.mark.parametrize("tensor", [torch.zeros(3, 4), torch.ones(3, 4), torch.ones(1, 1), torch.tensor([[1e-38, 0.0, -1e30]])])
def test_x7_is_finite_and_fair_for_equal_and_extreme_magnitudes(tensor):
    p = merges._chances_to_stay(tensor, 0.1)
    for value in tensor.abs().unique():
        assert len(p[tensor.abs() == value].unique()) == 1
    assert all(bool(torch.isfinite(merged(della, tensor, tensor, seed=seed)).all()) for seed in range(20))


@given(st.integers(0, 10**6), st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_x8_follows_scipys_arc_on_the_sphere(seed, t):
    units = [tensor.flatten().double() / tensor.double().norm() for tensor in pair(seed)]
    first, second = (unit.float().view(5, 8) for unit in units)
    wanted = geometric_slerp(units[0].numpy(), units[1].numpy(), t)
    np.testing.assert_allclose(merged(slerp, first, second, t=t).flatten().numpy(), wanted, atol=1e-6)


@given(st.integers(0, 10**6), st.floats(0, 1), st.floats(-3, 3))
@settings(max_examples=30, deadline=None)
def test_x8_is_the_papers_formula_for_vectors_of_any_length(seed, t, size):
    first, second = pair(seed)
    second = second * 10**size
    a, b = first.flatten().double(), second.flatten().double()
    angle = torch.acos((a @ b) / (a.norm() * b.norm()))
    wanted = (torch.sin((1 - t) * angle) * a + torch.sin(t * angle) * b) / torch.sin(angle)
    norms = float(first.norm() + second.norm())
    torch.testing.assert_close(merged(slerp, first, second, t=t).flatten().double(), wanted, atol=1e-6 * norms, rtol=0)


def test_x8_is_linear_for_parallel_opposite_and_zero_vectors():
    first, _ = pair(1)
    for second in (first * 3, first * -3, torch.zeros_like(first), first):
        torch.testing.assert_close(merged(slerp, first, second, t=0.25), first * 0.75 + second * 0.25)
        assert bool(torch.isfinite(merged(slerp, second, first)).all())


@given(st.integers(0, 10**6), st.floats(-4, 2))
@settings(max_examples=30, deadline=None)
def test_x9_is_the_papers_formula(seed, size):
    first, second = (tensor * 10**size for tensor in pair(seed))
    p, q = first.double(), second.double()
    wanted = (p**3 + q**3) / (p**2 + q**2 + 1e-20)
    torch.testing.assert_close(merged(fisher, first, second).double(), wanted, atol=1e-6 * 10**size, rtol=0)


@pytest.mark.parametrize("operator", [task_arithmetic, ties, slerp, fisher])
def test_deterministic_merges_never_draw(operator):
    rng = stream(0, "merge")
    operator([single(tensor) for tensor in pair(3)], rng)
    assert rng.random() == stream(0, "merge").random()
