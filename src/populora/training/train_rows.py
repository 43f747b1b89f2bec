"""Phase 4 of a step, the batch: select the rollouts that train each member, and compute their advantages.

Whitening pools a member's task types (the paper; ``learner.whitening = "per_type"`` keeps them apart), but never members, whose
updates it would couple. The two roles of the single agent are whitened apart, because Absolute Zero's code has a batch for each. With
``"member"`` they are pooled. The mean reward of proposals without peers then counts as their advantage.

In its loss the agent's roles weigh by their tokens, as a mean over the whole batch has it (the paper), or half each
(``learner.role_weights = "equal"``). In the paper both have equally many sequences and the two nearly agree; with many attempts per
problem and one proposal per prompt, proposing has little weight in the first.

With ``learner.loss_aggregation = "sequence_mean"`` all sequences weigh alike in whitening and in the loss, however long they are.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from populora.core.config import LearnerConfig
from populora.core.types import Attempt, Generation, Member, TaskType, UpdateStats
from populora.engine.learning.batching import TrainRow
from populora.training.advantages import advantages
from populora.training.population import Population
from populora.training.rewards import CrossEvaluation, student_reward
from populora.training.rollout import Rollouts
from populora.training.run import Run

Integers = NDArray[np.int64]


class Sample(NamedTuple):
    """A rollout with its reward, the prompt group in which the reward is centred, its role and its task type."""

    generation: Generation
    reward: float
    group: int | str
    """The number of a proposer's prompt, or the id of a problem."""
    role: Literal["propose", "solve"]
    task: TaskType


def train_rows(config: LearnerConfig, population: Population, rollouts: Rollouts, outcome: CrossEvaluation) -> list[TrainRow]:
    """Build the mixed batch of a step: each member's own rollouts, centred per prompt and whitened per member and role."""
    samples: dict[str, list[Sample]] = {member.id: [] for member in population.members}
    for proposal, reward in zip(rollouts.proposals, outcome.teacher_rewards, strict=True):
        if reward is not None:
            samples[proposal.author].append(Sample(proposal.generation, reward, proposal.group, "propose", proposal.task))
    for attempt, reward, trained in zip(rollouts.attempts, outcome.student_rewards, outcome.trained, strict=True):
        if trained:
            samples[attempt.student].append(_solve_sample(attempt, reward))
    return [row for member in population.members for row in member_rows(member.slot, samples[member.id], config)]


def advantages_in_order(
    rows: Sequence[TrainRow], members: Sequence[Member], rollouts: Rollouts, outcome: CrossEvaluation
) -> tuple[tuple[float | None, ...], tuple[float | None, ...]]:
    """Return the advantages of `train_rows` in the order of the proposals and of the attempts, None where nobody trained."""
    by_slot: dict[int, list[float]] = {member.slot: [] for member in members}
    for row in rows:
        by_slot[row.slot].append(row.advantage)
    left = {member.id: iter(by_slot[member.slot]) for member in members}
    paid, trained = (reward is not None for reward in outcome.teacher_rewards), outcome.trained
    return (
        tuple([next(left[p.author]) if used else None for p, used in zip(rollouts.proposals, paid, strict=True)]),
        tuple([next(left[a.student]) if used else None for a, used in zip(rollouts.attempts, trained, strict=True)]),
    )


def train_on_attempts(run: Run, attempts: Mapping[int, Sequence[Attempt]]) -> dict[int, UpdateStats]:
    """Update each slot once from its own attempts, as a student learns, without proposers. Void attempts are left out."""
    rows: list[TrainRow] = []
    for slot, attempts_of_slot in attempts.items():
        scored = [(a, student_reward(a.formatted, a.correct, run.config.rewards)) for a in attempts_of_slot if not a.void]
        rows += member_rows(slot, [_solve_sample(attempt, reward) for attempt, reward in scored], run.config.learner)
    updates = run.learner.update(rows)
    run.sync_weights(updates)
    return updates


def _solve_sample(attempt: Attempt, reward: float) -> Sample:
    return Sample(attempt.generation, reward, attempt.problem.id, "solve", attempt.problem.task)


def member_rows(slot: int, samples: Sequence[Sample], config: LearnerConfig) -> list[TrainRow]:
    """Build the rows of one member."""
    lengths = np.array([len(sample.generation.tokens) for sample in samples], dtype=np.int64)
    sizes = lengths if config.loss_aggregation == "token_mean" else np.ones_like(lengths)
    values = advantages(
        [sample.reward for sample in samples],
        [sample.group for sample in samples],
        sizes,
        _batches(samples, config),
        config.centring,
    )
    values *= _weights(samples, lengths, sizes, config)
    return [
        TrainRow(slot, sample.generation.prompt_tokens, sample.generation.tokens, sample.generation.logprobs, value)
        for sample, value in zip(samples, values.tolist(), strict=True)
    ]


def _batches(samples: Sequence[Sample], config: LearnerConfig) -> Sequence[Hashable] | None:
    """Name the batch in which each sample is whitened; None: all in one."""
    match config.whitening:
        case "member":
            return None
        case "pooled":
            return [sample.role for sample in samples]
        case "per_type":
            return [(sample.role, sample.task) for sample in samples]


def _weights(samples: Sequence[Sample], lengths: Integers, sizes: Integers, config: LearnerConfig) -> NDArray[np.float64]:
    """Return the weights [n] that turn the learner's mean over all tokens into the mean by ``sizes``, the weights of sequences in means
    over sequences, or into the mean of the roles' means."""
    total, roles = sizes.sum(), 1
    if config.role_weights == "equal":
        solves = np.array([sample.role == "solve" for sample in samples], dtype=np.int64)
        of_role = np.bincount(solves, sizes)
        total, roles = of_role[solves], len(np.unique(solves))
    return np.where(lengths > 0, lengths.sum() * sizes / np.maximum(roles * total * lengths, 1), 0.0)
