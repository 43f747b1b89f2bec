"""REINFORCE++-baseline against a token-by-token oracle, and the properties that make it safe for a population."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora.core.errors import PopuloraError
from populora.training.advantages import advantages

REWARDS = [-1.0, -0.5, 0.0, 0.125, 0.5, 0.875, 1.0]
batches = st.lists(
    st.tuples(st.sampled_from(REWARDS), st.integers(0, 4), st.integers(0, 30), st.sampled_from(["code_i", "code_o"])),
    min_size=1,
    max_size=30,
)


def token_oracle(rewards, groups, lengths):
    """Write the batch out token by token, centre, and whiten with NumPy's own mean and unbiased variance."""
    centred = []
    for reward, group in zip(rewards, groups, strict=True):
        peers = [other for other, name in zip(rewards, groups, strict=True) if name == group]
        centred.append(reward - np.mean(peers) if len(peers) > 1 else reward)
    tokens = np.concatenate([np.full(length, value) for value, length in zip(centred, lengths, strict=True)])
    if tokens.size == 0 or np.ptp(tokens) < 1e-12:
        return np.zeros(len(rewards))
    return (np.array(centred) - tokens.mean()) / np.sqrt(tokens.var(ddof=1) + 1e-8)


@given(batches)
def test_one_batch_equals_the_token_oracle(batch):
    rewards, groups, lengths, _ = map(list, zip(*batch, strict=True))
    result = advantages(rewards, groups, lengths)
    assert result.shape == (len(batch),)
    np.testing.assert_allclose(result, token_oracle(rewards, groups, lengths), rtol=1e-9, atol=1e-9)


@given(batches)
def test_several_batches_equal_the_oracle_on_each_alone(batch):
    batch = [(reward, f"{kind}{group}", length, kind) for reward, group, length, kind in batch]
    rewards, groups, lengths, types = map(list, zip(*batch, strict=True))
    result = advantages(rewards, groups, lengths, types)
    for kind in set(types):
        rows = [index for index, name in enumerate(types) if name == kind]
        alone = token_oracle([rewards[i] for i in rows], [groups[i] for i in rows], [lengths[i] for i in rows])
        np.testing.assert_allclose(result[rows], alone, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("reward", [0.0, 0.1, -1.0])
def test_equal_rewards_give_exactly_zero(reward):
    assert not advantages([reward] * 7, ["a", "a", "a", "b", "b", "b", "b"], [3] * 7).any()


def test_empty_batch_has_no_advantages():
    assert advantages([], [], []).shape == (0,)


def test_group_names_do_not_matter():
    rewards, lengths = [1.0, -0.5, 0.5, 0.0], [3, 1, 4, 1]
    plain = advantages(rewards, [0, 0, 1, 1], lengths)
    assert (plain == advantages(rewards, [("o", 1), ("o", 1), ("i", 1), ("i", 1)], lengths)).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0], ["a"], [1, 1]), "one reward"),
        (([1.0], ["a"], [1, 1]), "one reward"),
        (([1.0], ["a"], [1], ["code_i", "code_o"]), "one reward"),
        (([float("nan")], ["a"], [1]), "finite"),
        (([1.0], ["a"], [-1]), "at least 0"),
    ],
)
def test_bad_batches_are_refused(arguments, message):
    with pytest.raises(PopuloraError, match=message):
        advantages(*arguments)
