"""Inverse-CDF sampling and the uniforms it consumes."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from populora.core.rng import stream
from populora.engine.sampling.token_sampling import BLOCK, UniformStream, inverse_cdf, sample_tokens


def test_draws_follow_the_softmax_and_logprobs_are_at_temperature_one():
    logits = torch.tensor([2.0, 0.0, -1.0, -torch.inf, 1.0])
    grid = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    for temperature in (1.0, 0.5):
        tokens, logprobs, entropies = sample_tokens(logits.expand(len(grid), -1), temperature, grid)
        expected = (logits / temperature).softmax(-1)
        shares = torch.bincount(tokens, minlength=5) / len(grid)
        torch.testing.assert_close(shares, expected, atol=1e-4, rtol=0)
        torch.testing.assert_close(logprobs, logits.log_softmax(-1)[tokens])
        kept = expected[expected > 0]
        torch.testing.assert_close(entropies[0], -(kept * kept.log()).sum())


def test_the_ends_of_the_unit_interval_never_draw_impossible_tokens():
    logits = torch.tensor([[-torch.inf, 0.0, 3.0, -torch.inf]]).expand(2, -1)
    tokens, _, _ = sample_tokens(logits, 1.0, torch.tensor([0.0, np.nextafter(1.0, 0.0)], dtype=torch.float64))
    assert tokens.tolist() == [1, 2]


@given(
    st.integers(1, 1500), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1e-12, 0.5, np.nextafter(1.0, 0.0)]), st.sampled_from([1, 10])
)
def test_two_short_sums_draw_what_one_over_the_vocabulary_draws(size, seed, edge, scale):
    rng = np.random.default_rng(seed)
    p = np.exp(scale * rng.normal(size=(6, size))).astype(np.float32) * (rng.random((6, size)) < 0.7)
    p[:, rng.integers(size)] = 1.0
    uniforms = np.append(rng.random(5), edge)
    drawn = inverse_cdf(torch.from_numpy(p), torch.from_numpy(uniforms)).numpy()
    sums = p.astype(np.float64).cumsum(1)
    assert (p[np.arange(6), drawn] > 0).all()
    wanted, slack = uniforms * sums[:, -1], 1e-12 * sums[:, -1]
    assert (sums[np.arange(6), drawn] >= wanted - slack).all()
    assert ((sums - p)[np.arange(6), drawn] <= wanted + slack).all()


def test_a_row_of_nan_draws_a_token_of_the_vocabulary():
    tokens, logprobs, _ = sample_tokens(torch.full((1, 700), torch.nan), 1.0, torch.tensor([0.5], dtype=torch.float64))
    assert 0 <= tokens.item() < 700 and logprobs.isnan().all()


def test_temperature_zero_takes_the_best_token():
    logits = torch.tensor([[0.1, 0.9, 0.3]])
    tokens, logprobs, _ = sample_tokens(logits, 0.0, torch.tensor([0.99], dtype=torch.float64))
    assert tokens.tolist() == [1]
    torch.testing.assert_close(logprobs, logits.log_softmax(-1)[:, 1])


def test_uniforms_depend_on_the_request_alone_and_on_no_order_of_asking():
    first = stream(3, "sample", "b", 2)
    expected = [first.random((BLOCK, 3)) for _ in range(3)]
    asked = UniformStream(3, ("b", 2), 3)
    for sample, number in ((2, 1), (0, 0), (1, 2), (2, 0)):
        assert np.array_equal(asked.block(sample, number), expected[number][:, sample])
    assert not np.array_equal(UniformStream(3, ("b", 3), 3).block(0, 0), expected[0][:, 0])
