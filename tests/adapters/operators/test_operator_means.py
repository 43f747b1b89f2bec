"""The mean of many children is the mean that the paper's formula implies; the check itself is checked with wrong operators."""

import math
from dataclasses import replace

import pytest
import torch

from populora.adapters.operators.crossovers import dare, extrapolative, layer_wise, svd_subspace
from populora.adapters.operators.merges import della
from populora.adapters.operators.modulewise import on_factors
from populora.adapters.operators.mutations import (
    component_masking,
    full_gaussian,
    layer_gaussian,
    neftune,
    rank_perturbation,
    svd_structured,
)
from populora.adapters.svd import double_qr_svd
from populora.core.rng import stream

DRAWS = 1500
SLOT = "layers.0.q_proj"


def strays(draws: torch.Tensor, mean: torch.Tensor) -> bool:
    """Whether the average over dimension 0 lies more than five standard errors from ``mean`` anywhere."""
    draws = draws.double()
    error = draws.std(dim=0) / math.sqrt(len(draws)) + 1e-6 * draws.abs().max()
    return bool(((draws.mean(dim=0) - mean.double()).abs() > 5 * error).any())


@pytest.fixture(scope="module")
def crowds(make_adapter):
    """Two parents of 1500 modules with equal factors: one call of an operator draws 1500 independent children of a module."""
    return [make_adapter(seed, modules=DRAWS, alike=True) for seed in (1, 2)]


def stacked(adapter):
    a, b = (torch.stack([pair[side] for pair in adapter.modules.values()]) for side in (0, 1))
    return a, b, b @ a


def one_delta(adapter):
    a, b = adapter.modules[SLOT]
    return b @ a


@pytest.mark.parametrize("mutation", [layer_gaussian, full_gaussian, neftune])
def test_additive_mutations_keep_the_mean_of_factors_and_delta(crowds, mutation):
    a, b, deltas = stacked(mutation(crowds[:1], stream(1, "mean")))
    parent = crowds[0]
    assert not strays(a, parent.modules[SLOT][0]) and not strays(b, parent.modules[SLOT][1])
    assert not strays(deltas, one_delta(parent))


def test_m1_mean_is_the_parent_times_the_lognormal_mean(crowds):
    _, _, deltas = stacked(svd_structured(crowds[:1], stream(2, "mean"), epsilon=0.4))
    assert not strays(deltas, math.exp(0.4**2 / 2) * one_delta(crowds[0]))
    assert strays(deltas, one_delta(crowds[0]))


def test_m3_mean_is_the_share_of_kept_components(crowds):
    _, _, deltas = stacked(component_masking(crowds[:1], stream(3, "mean")))
    assert not strays(deltas, (1 - 2 / 4) * one_delta(crowds[0]))


def test_m6_mean_is_the_delta_without_its_smallest_components(crowds):
    _, _, deltas = stacked(rank_perturbation(crowds[:1], stream(8, "mean"), sigma=0.5))
    parent = double_qr_svd([crowds[0].modules[SLOT]])[0]
    assert not strays(deltas, (parent.u[:, :2] * parent.s[:2]) @ parent.v[:, :2].T)
    assert strays(deltas, one_delta(crowds[0]))


def test_x1_mean_is_the_mean_of_the_factors_and_its_delta_has_cross_terms(crowds):
    a, b, deltas = stacked(dare(crowds, stream(4, "mean")))
    mean_a, mean_b = ((crowds[0].modules[SLOT][side] + crowds[1].modules[SLOT][side]) / 2 for side in (0, 1))
    assert not strays(a, mean_a) and not strays(b, mean_b)
    assert not strays(deltas, mean_b @ mean_a)
    assert strays(deltas, (one_delta(crowds[0]) + one_delta(crowds[1])) / 2)


def test_x1_mean_in_delta_space_is_the_mean_of_the_deltas(make_adapter):
    crowds = [make_adapter(seed, modules=DRAWS, rank=6, alike=True) for seed in (1, 2)]  # rank 6 of 6 x 7: nothing is truncated
    mean = (one_delta(crowds[0]) + one_delta(crowds[1])) / 2
    _, _, deltas = stacked(dare(crowds, stream(9, "mean"), space="delta"))
    assert not strays(deltas, mean)
    _, _, in_factors = stacked(dare(crowds, stream(9, "mean"), space="factor"))
    assert strays(in_factors, mean)


def test_x7_mean_is_the_mean_of_the_factors_without_the_smallest_entry_of_each(crowds):
    a, b, _ = stacked(della(crowds, stream(10, "mean")))
    for side, draws in enumerate((a, b)):
        assert not strays(draws, sum(without_smallest(parent.modules[SLOT][side]) for parent in crowds) / 2)
        assert strays(draws * 1.2, sum(without_smallest(parent.modules[SLOT][side]) for parent in crowds) / 2)


def without_smallest(tensor):
    return torch.where(tensor.abs() == tensor.abs().min(), 0.0, tensor)


def test_x2_mean_is_the_mean_of_the_parents_deltas(crowds):
    _, _, deltas = stacked(layer_wise(crowds, stream(5, "mean")))
    assert not strays(deltas, (one_delta(crowds[0]) + one_delta(crowds[1])) / 2)


def test_x3_mean_weighs_each_component_by_the_chance_of_k(crowds):
    _, _, deltas = stacked(svd_subspace(crowds, stream(6, "mean")))
    first, second = (double_qr_svd([parent.modules[SLOT]])[0] for parent in crowds)
    from_first = torch.tensor([3, 2, 1, 0]) / 3  # P(k > i), k uniform in 1..3
    wanted = (first.u * first.s * from_first) @ first.v.T + (second.u * second.s * (1 - from_first)) @ second.v.T
    assert not strays(deltas, wanted)
    top_of_both = (first.u * first.s * from_first) @ first.v.T + (second.u * second.s * (1 - from_first.flip(0))) @ second.v.T
    assert strays(deltas, top_of_both)


def test_x4_mean_is_a_quarter_beyond_parent_two(crowds):
    parents = [replace(parent, modules={SLOT: parent.modules[SLOT]}) for parent in crowds]
    children = [extrapolative(parents, stream(7, "mean", draw)) for draw in range(DRAWS)]
    for side in (0, 1):
        draws = torch.stack([child.modules[SLOT][side] for child in children])
        first, second = (parent.modules[SLOT][side] for parent in parents)
        assert not strays(draws, first + 1.25 * (second - first))
        assert strays(draws, second)


def test_the_check_finds_an_operator_that_forgets_to_rescale(crowds):
    def forgetful(parents, rng, drop=0.7):
        child = dare(parents, rng, drop=drop)
        return on_factors([child], lambda pair: (pair[0] * (1 - drop), pair[1] * (1 - drop)))

    a, b, _ = stacked(forgetful(crowds, stream(4, "mean")))
    mean_a, mean_b = ((crowds[0].modules[SLOT][side] + crowds[1].modules[SLOT][side]) / 2 for side in (0, 1))
    assert strays(a, mean_a) and strays(b, mean_b)
