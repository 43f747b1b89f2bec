"""REINFORCE++-baseline against a token-by-token oracle, and the properties that make it safe for a population."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora.core.errors import PopuloraError
from populora.training.advantages import advantages

REWARDS = [-1.0, -0.5, 0.0, 0.125, 0.5, 0.875, 1.0]
batches = st.lists(
    st.tuples(st.sampled_from(REWARDS), st.integers(0, 4), st.integers(0, 30), st.integers(0, 1)),
    min_size=1,
    max_size=30,
)


def token_oracle(rewards, groups, lengths, centring="prompt"):
    """Write the batch out token by token, centre, and whiten with NumPy's own mean and unbiased variance."""
    centred = []
    for reward, group in zip(rewards, groups, strict=True):
        peers = [other for other, name in zip(rewards, groups, strict=True) if name == group]
        centred.append(reward - np.mean(peers) if len(peers) > 1 else reward)
    values = np.array(centred)
    shifted = np.array([centring == "batch" or groups.count(group) == 1 for group in groups])
    tokens = np.repeat(values, lengths)
    if np.repeat(shifted, lengths).any():
        values = values - np.where(shifted, tokens[np.repeat(shifted, lengths)].mean(), 0.0)
    tokens = np.repeat(values, lengths)
    if tokens.size < 2 or np.abs(tokens).max() < 1e-12:
        return np.zeros(len(rewards))
    return values / np.sqrt((tokens**2).sum() / (tokens.size - 1) + 1e-8)


@given(batches, st.sampled_from(["prompt", "batch"]))
def test_one_batch_equals_the_token_oracle(batch, centring):
    rewards, groups, lengths, _ = map(list, zip(*batch, strict=True))
    result = advantages(rewards, groups, lengths, [0] * len(batch), centring)
    assert result.shape == (len(batch),)
    if sum(lengths) > 1:
        np.testing.assert_allclose(result, token_oracle(rewards, groups, lengths, centring), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("longer", [1.5, 3, 8])
def test_a_prompt_whose_samples_all_failed_is_rewarded_for_their_length_unless_centred_alone(longer):
    """Failures are longer in the other prompt, too: their mean over tokens is below 0."""
    rewards, groups = [-1.0] * 8 + [1.0] * 4 + [-1.0] * 4, [0] * 8 + [1] * 8
    lengths = [int(10 * longer)] * 8 + [10] * 4 + [int(10 * longer)] * 4
    assert not advantages(rewards, groups, lengths, [0] * 16, "prompt")[:8].any()
    assert (advantages(rewards, groups, lengths, [0] * 16, "batch")[:8] > 0.1).all()


def test_single_samples_are_centred_by_the_mean_of_their_tokens_alone():
    result = advantages([1.0, 0.0, 5.0, 3.0], [0, 1, 2, 2], [1, 3, 2, 2], [0] * 4, "prompt")
    np.testing.assert_allclose(result / result[0], [1.0, -1 / 3, 4 / 3, -4 / 3])


@given(batches)
def test_several_batches_equal_the_oracle_on_each_alone(batch):
    batch = [(reward, 5 * kind + group, length, kind) for reward, group, length, kind in batch]
    rewards, groups, lengths, types = map(list, zip(*batch, strict=True))
    result = advantages(rewards, groups, lengths, types)
    for kind in set(types):
        rows = [index for index, name in enumerate(types) if name == kind]
        alone = token_oracle([rewards[i] for i in rows], [groups[i] for i in rows], [lengths[i] for i in rows])
        np.testing.assert_allclose(result[rows], alone, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("reward", [0.0, 0.1, -1.0])
def test_equal_rewards_give_exactly_zero(reward):
    assert not advantages([reward] * 7, [0, 0, 0, 1, 1, 1, 1], [3] * 7, [0] * 7).any()


def test_empty_batch_has_no_advantages():
    assert advantages([], [], [], []).shape == (0,)


def test_which_numbers_prompts_and_batches_have_does_not_matter():
    rewards, lengths = [1.0, -0.5, 0.5, 0.0], [3, 1, 4, 1]
    plain = advantages(rewards, [0, 0, 1, 1], lengths, [0, 0, 0, 1])
    assert (plain == advantages(rewards, [2**40, 2**40, 7, 7], lengths, [5, 5, 5, -1])).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0], [0], [1, 1], [0, 0]), "one reward"),
        (([1.0], [0], [1, 1], [0]), "one reward"),
        (([1.0], [0], [1], [0, 1]), "one reward"),
        (([[1.0]], [0], [1], [0]), "one reward"),
        (([float("nan")], [0], [1], [0]), "finite"),
        (([1.0], [0], [-1], [0]), "at least 0"),
    ],
)
def test_bad_batches_are_refused(arguments, message):
    with pytest.raises(PopuloraError, match=message):
        advantages(*arguments)
