"""Double-QR SVD against `torch.linalg.svd` of the dense delta, and both ways of refactoring."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from populora.lora.svd import Spectrum, dead_components, double_qr_svd, refactor, singular_values
from populora.rng import stream

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


@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES, st.integers(1, 8), st.integers(0, 10**6), st.sampled_from(["none", "zero", "column", "repeated"]))
def test_it_is_the_svd_of_the_dense_delta(out, inner, rank, seed, deficiency):
    a, b = factors(out, inner, rank, seed, deficiency)
    dense = b @ a
    u, s, v = spectrum = double_qr_svd(a, b)
    assert (u.shape, s.shape, v.shape) == ((out, rank), (rank,), (inner, rank))
    assert {part.dtype for part in spectrum} == {torch.float32}
    scale = float(b.norm() * a.norm())
    torch.testing.assert_close(rebuilt(spectrum), dense, atol=2e-6 * scale, rtol=0)
    wanted = torch.zeros(rank)
    known = torch.linalg.svdvals(dense)[:rank]
    wanted[: len(known)] = known
    torch.testing.assert_close(s, wanted, atol=2e-6 * scale, rtol=0)
    torch.testing.assert_close(singular_values(a, b), s[: min(out, inner, rank)].double(), atol=2e-6 * scale, rtol=0)
    real = min(out, inner, rank)
    for basis in (u, v):
        torch.testing.assert_close(basis[:, :real].T @ basis[:, :real], torch.eye(real), atol=1e-5, rtol=0)
        assert not basis[:, real:].any()


def test_components_are_those_of_the_dense_svd():
    a, b = factors(out=20, inner=30, rank=4, seed=1)
    u, _, v = double_qr_svd(a, b)
    dense_u, _, dense_vt = torch.linalg.svd(b @ a)
    torch.testing.assert_close((u * dense_u[:, :4]).sum(0).abs(), torch.ones(4))
    torch.testing.assert_close((v * dense_vt[:4].T).sum(0).abs(), torch.ones(4))


def test_signs_do_not_depend_on_the_factorisation():
    a, b = factors(out=10, inner=14, rank=3, seed=2)
    mix = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(3))).Q
    one, two = double_qr_svd(a, b), double_qr_svd(mix.T @ a, b @ mix)
    torch.testing.assert_close(one.u, two.u, atol=1e-5, rtol=0)
    torch.testing.assert_close(one.v, two.v, atol=1e-5, rtol=0)
    peaks = one.u.gather(0, one.u.abs().argmax(dim=0, keepdim=True))
    assert bool((peaks > 0).all())


def test_the_dense_delta_is_never_formed():
    a, b = factors(out=300_000, inner=300_000, rank=2, seed=0)  # dense: 360 GB
    assert bool((double_qr_svd(a, b).s > 0).all())


@pytest.mark.parametrize("how", ["balanced", "revive"])
@pytest.mark.parametrize("deficiency", ["none", "zero", "column", "repeated"])
def test_both_refactors_keep_the_delta(how, deficiency):
    a, b = factors(out=9, inner=16, rank=4, seed=5, deficiency=deficiency)
    new_a, new_b = refactor(double_qr_svd(a, b), how, stream(0, "refactor"))
    assert (new_a.shape, new_b.shape) == (a.shape, b.shape)
    assert (new_a.dtype, new_b.dtype) == (torch.float32, torch.float32)
    torch.testing.assert_close(new_b @ new_a, b @ a, atol=2e-5, rtol=1e-5)


def test_the_split_is_even():
    a, b = refactor(double_qr_svd(*factors(9, 16, 4, seed=6)), "balanced", stream(0, "x"))
    torch.testing.assert_close(a @ a.T, b.T @ b, atol=1e-5, rtol=1e-5)


def test_revive_restarts_dead_components_as_lora_starts():
    a, b = factors(out=40, inner=400, rank=6, seed=7)
    spectrum = double_qr_svd(a, b)
    spectrum.s[[1, 4]] = 0.0
    new_a, new_b = refactor(spectrum, "revive", stream(0, "revive"))
    dead = dead_components(spectrum.s)
    assert dead.tolist() == [False, True, False, False, True, False]
    assert not new_b[:, dead].any()
    bound = 1 / math.sqrt(400)
    reference = torch.nn.Linear(400, 2, bias=False)
    torch.nn.init.kaiming_uniform_(reference.weight, a=math.sqrt(5))
    assert float(new_a[dead].abs().max()) <= bound
    assert float(new_a[dead].std()) == pytest.approx(float(reference.weight.detach().std()), rel=0.1)
    balanced_a, balanced_b = refactor(spectrum, "balanced", stream(0, "revive"))
    assert not balanced_a[dead].any() and not balanced_b[:, dead].any()
    torch.testing.assert_close(new_b @ new_a, balanced_b @ balanced_a)


def test_a_zero_delta_is_dead_throughout():
    spectrum = double_qr_svd(*factors(8, 8, 3, seed=8, deficiency="zero"))
    assert dead_components(spectrum.s).tolist() == [True] * 3
    new_a, new_b = refactor(spectrum, "revive", stream(0, "zero"))
    assert not new_b.any() and bool((new_a != 0).all())
