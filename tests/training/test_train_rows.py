"""What shares a whitening batch: a member's task types, never the two roles of the single agent; and what the roles weigh."""

from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from populora.core.config import Config, LearnerConfig
from populora.core.types import Attempt, Example, Generation, Problem, TaskType
from populora.training.population import Population
from populora.training.train_rows import Samples, advantages_in_order, rows_of, train_on_attempts, train_rows


class Sample(NamedTuple):
    """A row of `Samples`."""

    slot: int
    generation: Generation
    reward: float
    group: str
    role: bool
    task: TaskType


def sample(reward, group, role, task=TaskType.CODE_I, length=4):
    generation = Generation("text", (1, 2), tuple(range(length)), (-0.5,) * length, 0.7, True)
    return Sample(0, generation, reward, group, role == "solve", task)


def rows(samples, config):
    return rows_of(Samples(*map(list, zip(*samples, strict=True))), config)


PROPOSALS = [sample(reward, f"p{index}", "propose") for index, reward in enumerate([0.5, 0.25, 0.0, 0.75])]
ATTEMPTS = [sample(reward, "problem", "solve", length=20) for reward in [1.0, -0.5, -0.5, 1.0]]


def values(samples, whitening="pooled", role_weights="tokens", centring="batch", loss_aggregation="token_mean"):
    config = LearnerConfig(whitening=whitening, role_weights=role_weights, centring=centring, loss_aggregation=loss_aggregation)
    return np.array([row.advantage for row in rows(samples, config)])


def token_mean(advantages, samples):
    """What the learner makes of a value a sequence: its mean over all tokens."""
    return np.average(advantages, weights=[len(each.generation.tokens) for each in samples])


def test_a_proposal_without_peers_is_worth_the_same_to_the_single_agent_as_to_a_teacher():
    agent = values(PROPOSALS + ATTEMPTS)
    np.testing.assert_array_equal(agent[:4], values(PROPOSALS))
    np.testing.assert_array_equal(agent[4:], values(ATTEMPTS))
    assert abs(agent[:4].mean()) < 1e-12


def test_with_equal_weights_each_role_of_the_single_agent_has_half_of_its_loss():
    agent = values(PROPOSALS + ATTEMPTS, role_weights="equal")
    whole = token_mean(np.abs(agent), PROPOSALS + ATTEMPTS)
    halves = [token_mean(np.abs(values(role)), role) for role in (PROPOSALS, ATTEMPTS)]
    assert whole == pytest.approx(sum(halves) / 2, rel=1e-12)
    proposed = np.where(np.arange(8) < 4, np.abs(agent), 0.0)
    assert token_mean(proposed, PROPOSALS + ATTEMPTS) == pytest.approx(halves[0] / 2, rel=1e-12)


@pytest.mark.parametrize("role_weights", ["tokens", "equal"])
def test_with_a_sequence_mean_a_long_response_counts_like_a_short_one(role_weights):
    proposals = [sample(reward, f"p{length}", "propose", length=length) for reward, length in ((0.5, 4), (0.25, 40), (0.0, 9), (0.75, 200))]
    attempts = [sample(reward, "problem", "solve", length=length) for reward in (1.0, -0.5) for length in (5, 70, 8)]
    samples = proposals + attempts
    tokens = np.array([len(each.generation.tokens) for each in samples])
    shares = values(samples, role_weights=role_weights, loss_aggregation="sequence_mean") * tokens / tokens.sum()
    parts = [np.array([each.reward for each in role]) for role in (proposals, attempts)]
    counts = [len(samples)] * 2 if role_weights == "tokens" else [2 * len(part) for part in parts]
    expected = [(part - part.mean()) / part.std(ddof=1) / count for part, count in zip(parts, counts, strict=True)]
    np.testing.assert_allclose(shares, np.concatenate(expected), rtol=1e-7)


def test_equal_weights_leave_a_member_with_one_role_as_it_is():
    np.testing.assert_array_equal(values(PROPOSALS, role_weights="equal"), values(PROPOSALS))


def test_the_roles_of_the_single_agent_are_whitened_together_if_told():
    whole = PROPOSALS + ATTEMPTS
    agent = values(whole, whitening="member")
    tokens = [len(each.generation.tokens) for each in whole]
    assert token_mean(agent, whole) == pytest.approx(0.0, abs=1e-12)
    assert np.average(agent**2, weights=tokens) == pytest.approx(1.0, rel=0.02)  # the variance divides by one token less
    assert abs(agent[:4].mean()) > 0.1  # apart, proposals without peers would have a mean of 0
    np.testing.assert_array_equal(values(PROPOSALS, whitening="member"), values(PROPOSALS))


@pytest.mark.parametrize(("whitening", "together"), [("pooled", True), ("per_type", False), ("member", True)])
def test_task_types_are_pooled_unless_told(whitening, together):
    other = [sample(reward, f"o{index}", "propose", TaskType.CODE_O) for index, reward in enumerate([0.0, 0.0, 0.1, 0.0])]
    first = values(PROPOSALS + other, whitening)[:4]
    assert np.array_equal(first, values(PROPOSALS, whitening)) is not together


def test_no_samples_give_no_rows():
    assert rows_of(Samples([], [], [], [], [], []), LearnerConfig()) == []


@pytest.mark.parametrize("whitening", ["pooled", "member", "per_type"])
@pytest.mark.parametrize("role_weights", ["tokens", "equal"])
def test_members_do_not_change_each_other(whitening, role_weights):
    config = LearnerConfig(whitening=whitening, role_weights=role_weights)
    longer = [sample(reward, "problem", "solve", length=30) for reward in [1.0, 1.0, -0.5]]  # another member's, at the same problem
    alone = [PROPOSALS + ATTEMPTS, longer, ATTEMPTS[:3]]
    members = [[each._replace(slot=slot) for each in samples] for slot, samples in zip((4, 0, 7), alone, strict=True)]
    together = rows([each for samples in members for each in samples], config)
    assert [row.slot for row in together] == [4] * 8 + [0] * 3 + [7] * 3
    assert [row.advantage for row in together] == [row.advantage for samples in alone for row in rows(samples, config)]


def test_a_prompt_whose_attempts_all_failed_trains_nobody_if_rewards_are_centred_by_prompt():
    lost = [sample(-1.0, "lost", "solve", length=30) for _ in range(4)]
    mixed = [sample(1.0, "mixed", "solve", length=5), sample(-1.0, "mixed", "solve", length=30)]
    assert values(lost + mixed)[0] > 0.1
    assert not values(lost + mixed, centring="prompt")[:4].any()


def test_advantages_come_back_in_the_order_of_proposals_and_attempts(make_record):
    record = make_record(teacher_rewards=(0.5, 0.25, 0.0, None, -1.0, -1.0))
    population = Population(record.members)
    trained_rows = train_rows(LearnerConfig(), population, record, record)
    of_proposals, of_attempts = advantages_in_order(trained_rows, record)
    learned = {(row.slot, len(row.tokens)): row.advantage for row in trained_rows}
    slots = {member.id: member.slot for member in population.members}
    for proposal, reward, value in zip(record.proposals, record.teacher_rewards, of_proposals, strict=True):
        assert value == (None if reward is None else learned[slots[proposal.author], len(proposal.generation.tokens)])
    for attempt, trained, value in zip(record.attempts, record.trained, of_attempts, strict=True):
        assert value == (learned[slots[attempt.student], len(attempt.generation.tokens)] if trained else None)
    assert len({*of_proposals, *of_attempts}) > 5, "values that are all equal would show nothing"


def test_void_attempts_train_no_adapter_that_learns_without_proposers():
    learned = []
    learner = SimpleNamespace(update=lambda rows: learned.append(rows) or {})
    run = SimpleNamespace(config=Config(), learner=learner, sync_weights=lambda slots: None)
    asked = Problem("p", TaskType.CODE_O, "def f(x):\n    return x", (Example("1", "1"),))
    tried = [Attempt("S0", asked, each.generation, True, each.reward > 0) for each in ATTEMPTS]
    void = [attempt._replace(problem=replace(asked, id="flaky"), correct=False, void=True) for attempt in tried]
    train_on_attempts(run, {2: tried})
    train_on_attempts(run, {2: [*void, *tried]})
    assert learned[0] == learned[1] and len(learned[0]) == len(tried)
