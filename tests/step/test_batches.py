"""What shares a whitening batch: a member's task types, never the two roles of the single agent; and what the roles weigh."""

import numpy as np
import pytest

from populora.batches import Sample, member_rows
from populora.types import Generation, TaskType


def sample(reward, group, role, task=TaskType.CODE_I, length=4):
    generation = Generation("text", (1, 2), tuple(range(length)), (-0.5,) * length, 0.7, True)
    return Sample(generation, reward, group, role, task)


PROPOSALS = [sample(reward, f"p{index}", "propose") for index, reward in enumerate([0.5, 0.25, 0.0, 0.75])]
ATTEMPTS = [sample(reward, "problem", "solve", length=20) for reward in [1.0, -0.5, -0.5, 1.0]]


def values(samples, whitening="pooled"):
    return np.array([row.advantages for row in member_rows(0, samples, whitening)])


def token_mean(advantages, samples):
    """What the learner makes of a value a sequence: its mean over all tokens."""
    return np.average(advantages, weights=[len(each.generation.tokens) for each in samples])


def test_a_proposal_without_peers_has_the_same_sign_and_rank_for_the_single_agent_as_for_a_teacher():
    agent, alone = values(PROPOSALS + ATTEMPTS)[:4], values(PROPOSALS)
    np.testing.assert_allclose(agent / np.abs(agent).max(), alone / np.abs(alone).max(), rtol=1e-12)
    assert abs(agent.mean()) < 1e-12


def test_each_role_of_the_single_agent_has_half_of_its_loss():
    agent = values(PROPOSALS + ATTEMPTS)
    whole = token_mean(np.abs(agent), PROPOSALS + ATTEMPTS)
    halves = [token_mean(np.abs(values(role)), role) for role in (PROPOSALS, ATTEMPTS)]
    assert whole == pytest.approx(sum(halves) / 2, rel=1e-12)
    proposed = np.where(np.arange(8) < 4, np.abs(agent), 0.0)
    assert token_mean(proposed, PROPOSALS + ATTEMPTS) == pytest.approx(halves[0] / 2, rel=1e-12)


def test_a_member_with_one_role_has_advantages_of_unit_variance():
    np.testing.assert_allclose(np.var(values(PROPOSALS), ddof=0), 15 / 16, rtol=1e-6)  # unbiased over 16 tokens


@pytest.mark.parametrize(("whitening", "together"), [("pooled", True), ("per_type", False)])
def test_task_types_are_pooled_unless_told(whitening, together):
    other = [sample(reward, f"o{index}", "propose", TaskType.CODE_O) for index, reward in enumerate([0.0, 0.0, 0.1, 0.0])]
    first = values(PROPOSALS + other, whitening)[:4]
    assert np.array_equal(first, values(PROPOSALS, whitening)) is not together


def test_no_samples_give_no_rows():
    assert member_rows(0, [], "pooled") == []
