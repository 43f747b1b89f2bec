"""What each mutation does to a parent, and that masked components can learn again only when revived."""

import math

import pytest
import torch
from scipy.stats import kstest

from populora.adapters.adapter import Adapter
from populora.adapters.operators.mutations import (
    component_masking,
    full_gaussian,
    layer_gaussian,
    neftune,
    rank_perturbation,
    svd_structured,
)
from populora.adapters.svd import dead_components, double_qr_svd
from populora.core.rng import stream


def delta(adapter, name):
    a, b = adapter.modules[name]
    return b @ a


def test_m1_with_the_exact_cayley_rotation_scales_singular_values_only(make_adapter):
    parent = make_adapter(2, modules=1)
    (name,) = parent.modules
    child = svd_structured([parent], stream(0, "op"), epsilon=0.5, rotation="cayley")
    z = torch.from_numpy(stream(0, "op").standard_normal((4,), dtype="float32"))
    wanted = double_qr_svd([parent.modules[name]])[0].s * torch.exp(0.5 * z)
    torch.testing.assert_close(double_qr_svd([child.modules[name]])[0].s, wanted.sort(descending=True).values, atol=1e-4, rtol=1e-4)


def test_m1_rotations_agree_to_first_order(make_adapter):
    parent = make_adapter(2, modules=1)
    (name,) = parent.modules
    cayley, first_order = (
        svd_structured([parent], stream(0, "op"), epsilon=0.01, rotation=rotation) for rotation in ("cayley", "first_order")
    )
    moved = float((delta(first_order, name) - delta(parent, name)).norm())
    assert float((delta(cayley, name) - delta(first_order, name)).norm()) < 0.05 * moved


@pytest.mark.parametrize(("modules", "chosen"), [(112, 37), (12, 4), (1, 1)])
def test_m2_changes_a_third_of_the_modules_and_copies_the_rest(make_adapter, modules, chosen):
    parent = make_adapter(4, modules=modules)
    child = layer_gaussian([parent], stream(0, "op"))
    changed = [[not torch.equal(*pair) for pair in zip(child.modules[n], parent.modules[n], strict=True)] for n in parent.modules]
    assert changed.count([True, True]) == chosen
    assert changed.count([False, False]) == modules - chosen
    assert list(child.modules) == list(parent.modules)


@pytest.mark.parametrize(("rank", "masked"), [(4, 2), (10, 3), (32, 10)])
def test_m3_masks_the_stated_number_of_random_components(make_adapter, rank, masked):
    parent = make_adapter(5, modules=1, rank=rank)
    parent.modules["layers.0.q_proj"] = (torch.randn(rank, 50), torch.randn(40, rank))
    before = double_qr_svd([parent.modules["layers.0.q_proj"]])[0].s
    kept_sets = set()
    for draw in range(8):
        child = component_masking([parent], stream(0, "op", draw))
        after = double_qr_svd([child.modules["layers.0.q_proj"]])[0].s
        assert int(dead_components(after).sum()) == masked
        kept = torch.cdist(after[: rank - masked, None].double(), before[:, None].double()).min(dim=1)
        assert float(kept.values.max()) < 1e-3
        kept_sets.add(tuple(kept.indices.tolist()))
    assert len(kept_sets) > 3


def test_m4_noise_follows_the_spread_of_each_tensor(make_adapter):
    parent = make_adapter(6, modules=300)
    parent.modules.update({name: (a, b * 10) for name, (a, b) in parent.modules.items()})
    child = full_gaussian([parent], stream(0, "op"), epsilon=0.15)
    for side in (0, 1):
        pairs = [(parent.modules[name][side], child.modules[name][side]) for name in parent.modules]
        squares = [float(((after - before) ** 2).mean() / before.var(correction=0)) for before, after in pairs]
        assert math.sqrt(sum(squares) / len(squares)) == pytest.approx(0.15, rel=0.02)


@pytest.mark.parametrize("shape", [(32, 3584), (3, 33335)])
def test_m4_noise_is_normal(shape):
    parent = Adapter({"w": (torch.randn(shape, generator=torch.Generator().manual_seed(0)), torch.zeros(1, shape[0]))}, shape[0], 1.0)
    a = parent.modules["w"][0]
    noise = (full_gaussian([parent], stream(0, "op"), epsilon=1.0).modules["w"][0] - a).double().flatten() / a.double().std(correction=0)
    assert kstest(noise.numpy(), "norm").pvalue > 0.01
    half = len(noise) // 2
    assert abs(float((noise[:half] * noise[-half:]).mean())) < 4 / math.sqrt(half)  # cosines and sines of a pair
    assert abs(float((noise[:half].square() * noise[-half:].square()).mean()) - 1) < 0.05


def test_m5_noise_is_uniform_on_a_and_follows_its_size(make_adapter):
    parent = make_adapter(12, modules=300)
    child = neftune([parent], stream(0, "op"), alpha=3.0)
    noise = torch.stack([a - parent.modules[name][0] for name, (a, _) in child.modules.items()])
    bound = 3.0 / math.sqrt(4 * 7)
    assert float(noise.abs().max()) <= bound + 1e-6
    assert float(noise.std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)
    assert all(torch.equal(b, parent.modules[name][1]) for name, (_, b) in child.modules.items())


def test_m5_noise_by_default_is_the_papers_at_7b():
    fresh = Adapter({"q_proj": (torch.zeros(32, 3584), torch.zeros(3584, 32))}, 32, 64.0)
    noise = neftune([fresh], stream(0, "op")).modules["q_proj"][0]
    assert float(noise.abs().max()) == pytest.approx(0.0295, rel=0.01)  # "approximately 0.03"


def test_m6_zeroes_the_smallest_components_and_scales_the_others(make_adapter):
    parent = make_adapter(13, modules=200, rank=5)
    child = rank_perturbation([parent], stream(0, "op"), k=2, sigma=0.05)
    factors = []
    for name in parent.modules:
        before = double_qr_svd([parent.modules[name]])[0]
        inside = before.u.T @ delta(child, name) @ before.v  # the directions stay
        assert float((inside - inside.diag().diag()).abs().max()) < 1e-4
        torch.testing.assert_close(inside.diag()[3:], torch.zeros(2), atol=1e-4, rtol=0)
        factors.append(inside.diag()[:3] / before.s[:3])
    factors = torch.stack(factors)
    assert float(factors.mean()) == pytest.approx(1.0, abs=0.01) and float(factors.std()) == pytest.approx(0.05, rel=0.1)


def test_m6_with_large_noise_turns_components_round(make_adapter):
    parent = make_adapter(14, modules=1, rank=5)
    (name,) = parent.modules
    before, z = double_qr_svd([parent.modules[name]])[0], stream(0, "op").standard_normal((3,), dtype="float32")
    child = rank_perturbation([parent], stream(0, "op"), k=2, sigma=2.0)
    wanted = (before.u[:, :3] * (before.s[:3] * (1 + 2.0 * torch.from_numpy(z)))) @ before.v[:, :3].T
    assert bool((1 + 2.0 * z < 0).any())
    torch.testing.assert_close(delta(child, name), wanted, atol=1e-4, rtol=1e-4)


def gradients(a, b, target):
    a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
    ((b @ a - target) ** 2).sum().backward()
    return a.grad, b.grad


@pytest.mark.parametrize(("refactor", "relearns"), [("revive", True), ("balanced", False)])
@pytest.mark.parametrize(("mutation", "strength"), [(component_masking, {}), (rank_perturbation, {"k": 3})])
def test_children_relearn_zeroed_directions_only_when_revived(mutation, strength, refactor, relearns, make_adapter):
    rank, masked = 8, 3
    generator = torch.Generator().manual_seed(8)
    parent = make_adapter(8, modules=1, rank=rank)
    parent.modules["layers.0.q_proj"] = (torch.randn(rank, 16, generator=generator), torch.randn(12, rank, generator=generator))
    target = torch.randn(12, 16, generator=generator)
    a, b = mutation([parent], stream(0, "op"), refactor=refactor, **strength).modules["layers.0.q_proj"]
    dead = ~b.any(dim=0)
    assert int(dead.sum()) == masked
    grad_a, grad_b = gradients(a, b, target)
    assert bool(grad_b[:, dead].any()) == relearns  # balanced: both gradients are exactly zero, so no step ever moves them
    assert not grad_a[dead].any()  # B = 0 there: A moves one step later

    a, b = a.requires_grad_(), b.requires_grad_()
    optimizer = torch.optim.AdamW([a, b], lr=1e-2, weight_decay=0.0)
    for _ in range(60):
        optimizer.zero_grad()
        ((b @ a - target) ** 2).sum().backward()
        optimizer.step()
    alive = int((~dead_components(double_qr_svd([(a.detach(), b.detach())])[0].s)).sum())
    assert alive == (rank if relearns else rank - masked)


@pytest.mark.parametrize("refactor", ["revive", "balanced"])
def test_svd_mutations_of_a_fresh_adapter(make_adapter, refactor):
    for mutation in (svd_structured, component_masking, rank_perturbation):
        child = mutation([make_adapter(9, zero_b=True)], stream(0, "op"), refactor=refactor)
        for a, b in child.modules.values():
            assert not b.any()
            assert bool(a.any()) == (refactor == "revive")  # the balanced child is dead for ever
            assert float(a.abs().max()) <= 1 / math.sqrt(7)
