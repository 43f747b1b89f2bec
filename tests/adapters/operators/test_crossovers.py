"""What each crossover takes from which parent."""

from dataclasses import replace

import pytest
import torch

from populora.adapters.operators.crossovers import dare, extrapolative, layer_wise, soup, svd_subspace
from populora.adapters.operators.merges import linear_0_5
from populora.adapters.svd import double_qr_svd
from populora.core.errors import AdapterError
from populora.core.rng import stream


@pytest.fixture
def parents(make_adapter):
    return [make_adapter(1, modules=40), make_adapter(2, modules=40)]


def same(left, right) -> bool:
    return all(torch.equal(x, y) for x, y in zip(left, right, strict=True))


def test_x1_entries_are_dropped_or_rescaled(parents):
    child = dare(parents, stream(0, "op"), drop=0.75)
    kept = 0
    for name in child.modules:
        for side in (0, 1):
            left, right, got = (adapter.modules[name][side] for adapter in (*parents, child))
            options = torch.stack([0 * left, 2 * left, 2 * right, 2 * left + 2 * right])  # 1 / (1 - 0.75) / 2 = 2
            assert float((options - got).abs().min(dim=0).values.max()) < 1e-5
            kept += int((got != 0).sum())
    size = sum(tensor.numel() for pair in child.modules.values() for tensor in pair)
    assert kept / size == pytest.approx(1 - 0.75**2, abs=0.04)


def test_x1_without_drops_is_the_mean(parents):
    dropless, mean = dare(parents, stream(0, "op"), drop=0.0), linear_0_5(parents, stream(0, "op"))
    for name in mean.modules:
        for got, wanted in zip(dropless.modules[name], mean.modules[name], strict=True):
            torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_soup_is_the_best_approximation_of_the_mean_delta(make_adapter, count):
    parents = [make_adapter(seed, modules=3, rank=2) for seed in range(count)]
    child = soup(parents, stream(0, "op"))
    assert child.rank == 2
    for name, (a, b) in child.modules.items():
        u, s, vt = torch.linalg.svd(sum(parent.delta(name) for parent in parents) / count)
        torch.testing.assert_close(b @ a, u[:, :2] * s[:2] @ vt[:2])


def test_a_soup_does_not_depend_on_the_bases_of_its_parents(make_adapter):
    parents = [make_adapter(seed) for seed in (1, 2, 3)]
    turned = replace(parents[1], modules={name: (a * 2, b / 2) for name, (a, b) in parents[1].modules.items()})
    first, second = soup(parents, stream(0, "op")), soup([parents[0], turned, parents[2]], stream(0, "op"))
    for name in first.modules:
        torch.testing.assert_close(first.delta(name), second.delta(name))


def test_x1_in_delta_space_drops_entries_of_the_dense_deltas(make_adapter):
    parents = [make_adapter(seed, modules=40, rank=6) for seed in (1, 2)]  # rank 6 of 6 x 7: nothing is truncated
    child = dare(parents, stream(0, "op"), drop=0.75, space="delta")
    kept = 0
    for name, (a, b) in child.modules.items():
        left, right = (parent.modules[name][1] @ parent.modules[name][0] for parent in parents)
        options = torch.stack([0 * left, 2 * left, 2 * right, 2 * left + 2 * right])
        assert float((options - b @ a).abs().min(dim=0).values.max()) < 1e-4
        kept += int(((b @ a).abs() > 1e-4).sum())
    assert kept / (40 * 6 * 7) == pytest.approx(1 - 0.75**2, abs=0.06)


def test_x1_in_delta_space_is_the_best_approximation_of_its_rank(make_adapter):
    parents = [make_adapter(seed, rank=2) for seed in (1, 2)]
    wide = [embedded(parent, 6) for parent in parents]  # the same deltas and, with rank 6, the same draws for them
    child, dense = (dare(family, stream(0, "op"), space="delta") for family in (parents, wide))
    for name, (a, b) in list(child.modules.items())[:1]:  # later modules have other draws: the start of each SVD is of the rank's size
        wanted_a, wanted_b = dense.modules[name]
        u, s, vt = torch.linalg.svd(wanted_b @ wanted_a)
        torch.testing.assert_close(b @ a, (u[:, :2] * s[:2]) @ vt[:2], atol=1e-4, rtol=1e-4)


def embedded(adapter, rank):
    def padded(a, b):
        more = rank - adapter.rank
        return torch.nn.functional.pad(a, (0, 0, 0, more)), torch.nn.functional.pad(b, (0, more))

    return replace(adapter, rank=rank, modules={name: padded(*pair) for name, pair in adapter.modules.items()})


def test_x1_in_delta_space_revives_what_fresh_parents_lack(make_adapter):
    parents = [make_adapter(seed, zero_b=True) for seed in (1, 2)]
    for drop in (0.0, 0.7):
        for refactor, alive in (("revive", True), ("balanced", False)):
            child = dare(parents, stream(0, "op"), refactor=refactor, drop=drop, space="delta")
            assert all(bool(a.any()) == alive and not b.any() for a, b in child.modules.values())


def test_x2_takes_each_module_whole_from_one_parent(parents):
    child = layer_wise(parents, stream(0, "op"))
    sources = [[same(child.modules[name], parent.modules[name]) for parent in parents] for name in child.modules]
    assert all(sorted(source) == [False, True] for source in sources)
    assert 8 <= sources.count([True, False]) <= 32


def test_x3_joins_leading_components_of_one_to_trailing_ones_of_two(parents):
    child = svd_subspace(parents, stream(0, "op"))
    seen = set()
    for name, (a, b) in child.modules.items():
        left, right = (double_qr_svd([parent.modules[name]])[0] for parent in parents)
        fits = [k for k in range(5) if torch.allclose(b @ a, composed(left, right, k), atol=1e-4)]
        assert len(fits) == 1
        seen.add(fits[0])
    assert seen == {1, 2, 3}


def composed(left, right, k):
    first = (left.u[:, :k] * left.s[:k]) @ left.v[:, :k].T
    return first + (right.u[:, k:] * right.s[k:]) @ right.v[:, k:].T


def test_x3_needs_two_components(make_adapter):
    with pytest.raises(AdapterError, match="rank 2"):
        svd_subspace([make_adapter(1, rank=1), make_adapter(2, rank=1)], stream(0, "op"))


def test_x3_revives_what_a_fresh_parent_lacks(make_adapter):
    parents = [make_adapter(1), make_adapter(2, zero_b=True)]
    for refactor, alive in (("revive", True), ("balanced", False)):
        child = svd_subspace(parents, stream(0, "op"), refactor=refactor)
        assert all(bool(a[-1].any()) == alive and not b[:, -1].any() for a, b in child.modules.values())


def test_x4_draws_one_eta_for_the_whole_adapter(parents):
    etas = []
    for draw in range(5):
        child = extrapolative(parents, stream(0, "op", draw))
        shares = torch.cat(
            [
                ((child.modules[n][side] - parents[0].modules[n][side]) / (parents[1].modules[n][side] - parents[0].modules[n][side]))
                .double()
                .flatten()
                for n in child.modules
                for side in (0, 1)
            ]
        )
        etas.append(float(shares.median()))
        torch.testing.assert_close(shares, torch.full_like(shares, etas[-1]), atol=1e-2, rtol=0)
    assert len(set(etas)) == 5 and all(1.0 <= eta <= 1.5 for eta in etas)
