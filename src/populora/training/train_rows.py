"""Phase 4 of a step, the batch: select the rollouts that train each member, and compute their advantages.

Whitening pools a member's task types (the paper; ``learner.whitening = "per_type"`` keeps them apart), but never members, whose
updates it would couple. The two roles of the single agent are whitened apart, because Absolute Zero's code has a batch for each. With
``"member"`` they are pooled. With ``centring = "batch"`` the mean reward of proposals without peers then counts as their advantage.

In its loss the agent's roles weigh by their tokens, as a mean over the whole batch has it (the paper), or half each
(``learner.role_weights = "equal"``). In the paper both have equally many sequences and the two nearly agree; with many attempts per
problem and one proposal per prompt, proposing has little weight in the first.

With ``learner.loss_aggregation = "sequence_mean"`` all sequences weigh alike in whitening and in the loss, however long they are.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from itertools import compress
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from populora.core.config import LearnerConfig
from populora.core.types import Attempt, Generation, Role, TaskType, UpdateStats
from populora.engine.learning.batching import TrainRow
from populora.training import rewards as reward_rules
from populora.training.advantages import advantages
from populora.training.population import Population
from populora.training.rewards import CrossEvaluation
from populora.training.rollout import Rollouts
from populora.training.run import Run

Integers = NDArray[np.int64]


class Samples(NamedTuple):
    """Rollouts to learn from, by column: a step has a hundred thousand."""

    slots: list[int]
    generations: list[Generation]
    rewards: list[float]
    groups: list[int | str]
    """Where a member's rewards are centred: the number of a proposer's prompt, or the id of a problem."""
    solves: list[bool]
    """The role: True for an attempt, False for a proposal."""
    tasks: list[TaskType]

    def and_then(self, others: "Samples") -> "Samples":
        """Append the rows of others."""
        return Samples._make(column + other for column, other in zip(self, others, strict=True))


def train_rows(config: LearnerConfig, population: Population, rollouts: Rollouts, outcome: CrossEvaluation) -> list[TrainRow]:
    """Build the mixed batch of a step, proposals and then attempts. Each member learns from its own, centred per prompt and whitened per
    member and role."""
    slots = population.slots
    proposals = list(compress(rollouts.proposals, (reward is not None for reward in outcome.teacher_rewards)))
    attempts = list(compress(rollouts.attempts, outcome.trained))
    proposed = Samples(
        slots=[slots[proposal.author] for proposal in proposals],
        generations=[proposal.generation for proposal in proposals],
        rewards=[reward for reward in outcome.teacher_rewards if reward is not None],
        groups=[proposal.group for proposal in proposals],
        solves=[False] * len(proposals),
        tasks=[proposal.task for proposal in proposals],
    )
    rewards = list(compress(outcome.student_rewards, outcome.trained))
    return rows_of(proposed.and_then(_solved([slots[attempt.student] for attempt in attempts], attempts, rewards)), config)


def step_scales(config: LearnerConfig, population: Population, step: int) -> dict[int, float]:
    """Return by slot what the step size of ``learning_rate`` is multiplied by at a step of the run, from 1. Teachers may have a rate of
    their own, and by ``decay_steps`` all fall in equal parts, to 0 after the last step."""
    decay = 1.0 - (step - 1) / config.decay_steps if config.decay_steps else 1.0
    teacher = (config.teacher_learning_rate or config.learning_rate) / config.learning_rate
    return {member.slot: decay * (teacher if member.role is Role.TEACHER else 1.0) for member in population.members}


def advantages_in_order(rows: Sequence[TrainRow], outcome: CrossEvaluation) -> tuple[tuple[float | None, ...], tuple[float | None, ...]]:
    """Return the advantages of `train_rows` in the order of the proposals and of the attempts, None where nobody trained."""
    left = iter([row.advantage for row in rows])
    of_proposals = tuple([None if reward is None else next(left) for reward in outcome.teacher_rewards])
    return of_proposals, tuple([next(left) if trained else None for trained in outcome.trained])


def train_on_attempts(run: Run, attempts: Mapping[int, Sequence[Attempt]]) -> dict[int, UpdateStats]:
    """Update each slot once from its own attempts, as a student learns, without proposers. Void attempts are left out."""
    kept = [(slot, attempt) for slot, attempts_of_slot in attempts.items() for attempt in attempts_of_slot if not attempt.void]
    rewards = [reward_rules.student_reward(attempt.formatted, attempt.correct, run.config.rewards) for _, attempt in kept]
    samples = _solved([slot for slot, _ in kept], [attempt for _, attempt in kept], rewards)
    updates = run.learner.update(rows_of(samples, run.config.learner))
    run.sync_weights(updates)
    return updates


def _solved(slots: list[int], attempts: Sequence[Attempt], rewards: list[float]) -> Samples:
    return Samples(
        slots=slots,
        generations=[attempt.generation for attempt in attempts],
        rewards=rewards,
        groups=[attempt.problem.id for attempt in attempts],
        solves=[True] * len(attempts),
        tasks=[attempt.problem.task for attempt in attempts],
    )


def rows_of(samples: Samples, config: LearnerConfig) -> list[TrainRow]:
    """Build the rows of the samples, in their order. Each member has whitening batches of its own."""
    generations = samples.generations
    if not generations:
        return []
    slots, solves = np.array(samples.slots), np.array(samples.solves)
    lengths = np.array([len(generation.tokens) for generation in generations], dtype=np.int64)
    sizes = lengths if config.loss_aggregation == "token_mean" else np.ones_like(lengths)
    batch = slots if config.whitening == "member" else 2 * slots + solves
    if config.whitening == "per_type":
        batch = _paired(batch, samples.tasks)
    values = advantages(samples.rewards, _paired(slots, samples.groups), sizes, batch, config.centring)
    values *= _weights(slots, solves, lengths, sizes, config)
    prompts, tokens, logprobs = (map(attrgetter(name), generations) for name in ("prompt_tokens", "tokens", "logprobs"))
    return list(map(TrainRow._make, zip(samples.slots, prompts, tokens, logprobs, values.tolist(), strict=True)))


def _paired(numbers: Integers, names: Sequence[Hashable]) -> Integers:
    """Return a number [n] for each pair of a number [n] and a name [n]; equal pairs have equal ones."""
    indices = defaultdict[Hashable, int]()
    indices.default_factory = indices.__len__
    return numbers * len(names) + np.fromiter(map(indices.__getitem__, names), dtype=np.int64)


def _weights(slots: Integers, solves: NDArray[np.bool_], lengths: Integers, sizes: Integers, config: LearnerConfig) -> NDArray[np.float64]:
    """Return the weights [n] that turn the learner's mean over all tokens of a slot into the mean by ``sizes``, the weights of sequences in
    means over sequences, or into the mean of the roles' means."""
    parts, kinds = (slots, 1) if config.role_weights == "tokens" else (2 * slots + solves, 2)
    present = np.bincount(parts, minlength=kinds * (slots.max() + 1)) > 0
    parts_of_slot = present.reshape(-1, kinds).sum(1)[slots]
    tokens, total = np.bincount(slots, lengths)[slots], np.bincount(parts, sizes)[parts]
    return tokens * sizes / (parts_of_slot * total * lengths)
