"""Double-QR SVD against `torch.linalg.svd` of the dense delta, the truncated one against the exact one, and the way back to factors."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from populora.adapters.svd import Spectrum, dead_components, double_qr_svd, recombine, revive, truncated_svd
from populora.core.rng import stream

SIZES = st.integers(1, 12)


def factors(out: int, inner: int, rank: int, seed: int, deficiency: str = "none") -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(rank, inner, generator=generator), torch.randn(out, rank, generator=generator)
    if deficiency == "zero":
        b.zero_()
    elif deficiency == "column":
        b[:, -1] = 0.0
    elif deficiency == "repeated":
        b[:, :] = b[:, :1]
    return a, b


def rebuilt(spectrum: Spectrum) -> torch.Tensor:
    return (spectrum.u * spectrum.s) @ spectrum.v.T


def refactored(spectrum: Spectrum, how: str, rng=None) -> tuple[torch.Tensor, torch.Tensor]:
    a, b, dead = recombine([spectrum])
    if how == "revive":
        revive(a, dead, rng or stream(0, "refactor"))
    return a, b


@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES, st.integers(1, 8), st.integers(0, 10**6), st.sampled_from(["none", "zero", "column", "repeated"]))
def test_it_is_the_svd_of_the_dense_delta(out, inner, rank, seed, deficiency):
    a, b = factors(out, inner, rank, seed, deficiency)
    dense = b @ a
    spectrum = double_qr_svd([(a, b)])[0]
    u, s, v = spectrum.u, spectrum.s, spectrum.v
    assert (u.shape, s.shape, v.shape) == ((out, rank), (rank,), (inner, rank))
    scale = float(b.norm() * a.norm())
    torch.testing.assert_close(rebuilt(spectrum), dense, atol=2e-6 * scale, rtol=0)
    wanted = torch.zeros(rank)
    known = torch.linalg.svdvals(dense)[:rank]
    wanted[: len(known)] = known
    torch.testing.assert_close(s, wanted, atol=2e-6 * scale, rtol=0)
    alive = ~dead_components(s)
    most = {"none": rank, "column": rank - 1, "repeated": 1, "zero": 0}[deficiency]
    assert int(alive.sum()) <= min(out, inner, most)
    for basis in (u, v):
        torch.testing.assert_close(basis[:, alive].T @ basis[:, alive], torch.eye(int(alive.sum())), atol=1e-4, rtol=0)
        assert bool((basis.norm(dim=0) <= 1.0001).all())


@settings(max_examples=80, deadline=None)
@given(st.floats(-9, 0), st.floats(-6, 6), st.integers(0, 10**6))
def test_vectors_stay_orthonormal_for_columns_nearly_dependent_or_of_very_different_size(closeness, size, seed):
    a, b = factors(out=30, inner=40, rank=4, seed=seed)
    b[:, 3] = b[:, 2] + 10**closeness * b[:, 3]
    b[:, 1] *= 10**size
    (spectrum,) = double_qr_svd([(a, b)])
    for basis in (spectrum.u, spectrum.v):
        torch.testing.assert_close(basis.T @ basis, torch.eye(4), atol=1e-4 if closeness < -1 else 1e-5, rtol=0)
    torch.testing.assert_close(rebuilt(spectrum), b @ a, atol=2e-6 * float(b.norm() * a.norm()), rtol=0)


def test_vectors_of_long_random_factors_are_orthonormal_to_fp32():
    (spectrum,) = double_qr_svd([factors(out=3584, inner=3584, rank=32, seed=3)])
    for basis in (spectrum.u.double(), spectrum.v.double()):
        torch.testing.assert_close(basis.T @ basis, torch.eye(32, dtype=torch.float64), atol=3e-6, rtol=0)


@pytest.mark.parametrize("size", [1e-25, 1e-23, 1e-22, 1e-20, 1e-12, 1e15, 1e25])
def test_squares_that_fp32_cannot_hold_do_no_harm(size):
    a, b = factors(out=30, inner=40, rank=4, seed=11)
    (spectrum,) = double_qr_svd([(a, b * size)])
    torch.testing.assert_close(spectrum.s / size, double_qr_svd([(a, b)])[0].s)
    torch.testing.assert_close(rebuilt(spectrum) / size, b @ a, atol=1e-5, rtol=1e-5)


def test_modules_of_any_rank_and_condition_are_decomposed_together_as_alone():
    shapes = [(9, 16, 4, 1), (8, 8, 3, 2, "zero"), (30, 20, 4, 3), (12, 9, 3, 4, "repeated"), (2, 9, 3, 5), (12, 9, 3, 6)]
    pairs = [factors(*shape) for shape in shapes]
    for together, pair in zip(double_qr_svd(pairs), pairs, strict=True):
        for first, second in zip(together, double_qr_svd([pair])[0], strict=True):
            torch.testing.assert_close(first, second)
    assert double_qr_svd([]) == []


def test_signs_do_not_depend_on_the_factorisation():
    a, b = factors(out=10, inner=14, rank=3, seed=2)
    mix = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(3))).Q
    first, second = double_qr_svd([(a, b)])[0], double_qr_svd([(mix.T @ a, b @ mix)])[0]
    torch.testing.assert_close(first.u, second.u, atol=1e-5, rtol=0)
    torch.testing.assert_close(first.v, second.v, atol=1e-5, rtol=0)
    assert bool((first.u.sum(dim=0) > 0).all())


def test_the_dense_delta_is_never_formed():
    a, b = factors(out=300_000, inner=300_000, rank=2, seed=0)  # dense: 360 GB
    assert bool((double_qr_svd([(a, b)])[0].s > 0).all())


@pytest.mark.parametrize("how", ["balanced", "revive"])
@pytest.mark.parametrize("deficiency", ["none", "zero", "column", "repeated"])
def test_both_refactors_keep_the_delta(how, deficiency):
    a, b = factors(out=9, inner=16, rank=4, seed=5, deficiency=deficiency)
    new_a, new_b = refactored(double_qr_svd([(a, b)])[0], how)
    assert (new_a.shape, new_b.shape) == (a.shape, b.shape)
    assert (new_a.dtype, new_b.dtype) == (torch.float32, torch.float32)
    torch.testing.assert_close(new_b @ new_a, b @ a, atol=2e-5, rtol=1e-5)


def test_the_split_is_even():
    a, b = refactored(double_qr_svd([factors(9, 16, 4, seed=6)])[0], "balanced")
    torch.testing.assert_close(a @ a.T, b.T @ b, atol=1e-5, rtol=1e-5)


def test_parts_of_two_deltas_are_joined():
    first, second = double_qr_svd([factors(9, 16, 4, seed=6)])[0], double_qr_svd([factors(9, 16, 4, seed=7)])[0]
    a, b, dead = recombine([first.part(0, 1), second.part(1, None)])
    wanted = (first.u[:, :1] * first.s[:1]) @ first.v[:, :1].T + (second.u[:, 1:] * second.s[1:]) @ second.v[:, 1:].T
    assert (a.shape, b.shape, bool(dead.any())) == ((4, 16), (9, 4), False)
    torch.testing.assert_close(b @ a, wanted, atol=1e-5, rtol=1e-5)


def test_revive_restarts_dead_components_as_lora_starts():
    a, b = factors(out=40, inner=400, rank=6, seed=7)
    spectrum = double_qr_svd([(a, b)])[0]
    spectrum.s[[1, 4]] = 0.0
    new_a, new_b = refactored(spectrum, "revive", stream(0, "revive"))
    dead = dead_components(spectrum.s)
    assert dead.tolist() == [False, True, False, False, True, False]
    assert not new_b[:, dead].any()
    bound = 1 / math.sqrt(400)
    reference = torch.nn.Linear(400, 2, bias=False)
    torch.nn.init.kaiming_uniform_(reference.weight, a=math.sqrt(5))
    assert float(new_a[dead].abs().max()) <= bound
    assert float(new_a[dead].std()) == pytest.approx(float(reference.weight.detach().std()), rel=0.1)
    balanced_a, balanced_b = refactored(spectrum, "balanced")
    assert not balanced_a[dead].any() and not balanced_b[:, dead].any()
    torch.testing.assert_close(new_b @ new_a, balanced_b @ balanced_a)


def test_revive_draws_nothing_without_dead_components():
    rng = stream(0, "revive")
    spectrum = double_qr_svd([factors(9, 16, 4, seed=6)])[0]
    a, _, dead = recombine([spectrum])
    revive(a, dead, rng)
    assert rng.random() == stream(0, "revive").random()


def noisy(out: int, inner: int, rank: int, noise: float, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    a, b = factors(out, inner, rank, seed)
    return b @ a + noise * torch.randn(out, inner, generator=generator)


@pytest.mark.parametrize("noise", [0.0, 0.5, 3.0])
def test_the_truncated_svd_keeps_what_the_exact_one_keeps(noise):
    dense = noisy(200, 300, 4, noise, seed=9)
    spectrum = truncated_svd(dense, 4, stream(0, "truncated"))
    exact = torch.linalg.svdvals(dense.double())
    lost = float((dense - rebuilt(spectrum)).norm())
    best = float(exact[4:].norm())
    assert lost <= 1.001 * best + 1e-6 * float(dense.norm())
    assert spectrum.s.shape == (4,) and float((spectrum.s**2).sum()) == pytest.approx(float((exact[:4] ** 2).sum()), rel=2e-3)


@pytest.mark.parametrize(("out", "inner"), [(20, 30), (10, 30), (3, 30), (30, 3)])
def test_the_truncated_svd_of_a_small_delta_is_the_exact_one(out, inner):
    dense = noisy(out, inner, 4, 1.0, seed=10)
    spectrum = truncated_svd(dense, 4, stream(0, "truncated"))
    u, s, vt = torch.linalg.svd(dense.double(), full_matrices=False)
    torch.testing.assert_close(rebuilt(spectrum), ((u[:, :4] * s[:4]) @ vt[:4]).float(), atol=1e-3, rtol=1e-3)
    assert spectrum.s.shape == (4,)
