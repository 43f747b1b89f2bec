"""Phase 4 of a step, the batch: select the rollouts that train each member, and compute their advantages.

Whitening pools a member's task types (the paper; ``learner.whitening = "per_type"`` keeps them apart), but never members, whose
updates it would couple. The two roles of the single agent are whitened apart, because Absolute Zero's code has a batch for each. With
``"member"`` they are pooled. The mean reward of proposals without peers then counts as their advantage.

In its loss the agent's roles weigh by their tokens, as a mean over the whole batch has it (the paper), or half each
(``learner.role_weights = "equal"``). In the paper both have equally many sequences and the two nearly agree; with many attempts per
problem and one proposal per prompt, proposing has little weight in the first.

With ``learner.loss_aggregation = "sequence_mean"`` all sequences weigh alike in whitening and in the loss, however long they are.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal, NamedTuple

from populora.core.config import LearnerConfig
from populora.core.types import Attempt, Generation, Member, TaskType, UpdateStats
from populora.engine.learning.batching import TrainRow
from populora.training.advantages import advantages
from populora.training.population import Population
from populora.training.rewards import CrossEvaluation, student_reward
from populora.training.rollout import Rollouts
from populora.training.run import Run


class Sample(NamedTuple):
    """A rollout with its reward, the prompt group in which the reward is centred, its role and its task type."""

    generation: Generation
    reward: float
    group: Hashable
    role: Literal["propose", "solve"]
    task: TaskType


def train_rows(config: LearnerConfig, population: Population, rollouts: Rollouts, outcome: CrossEvaluation) -> list[TrainRow]:
    """Build the mixed batch of a step: each member's own rollouts, centred per prompt and whitened per member and role."""
    samples: dict[str, list[Sample]] = {member.id: [] for member in population.members}
    for proposal, reward in zip(rollouts.proposals, outcome.teacher_rewards, strict=True):
        if reward is not None:
            group = ("propose", proposal.group)
            samples[proposal.author].append(Sample(proposal.generation, reward, group, "propose", proposal.task))
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
    return Sample(attempt.generation, reward, ("solve", attempt.problem.id), "solve", attempt.problem.task)


def member_rows(slot: int, samples: Sequence[Sample], config: LearnerConfig) -> list[TrainRow]:
    """Build the rows of one member."""
    sizes = [len(sample.generation.tokens) if config.loss_aggregation == "token_mean" else 1 for sample in samples]
    values = advantages(
        [sample.reward for sample in samples],
        [sample.group for sample in samples],
        sizes,
        [_batch(sample, config) for sample in samples],
        config.centring,
    )
    weights = _weights(samples, sizes, config)
    return [
        TrainRow(slot, sample.generation.prompt_tokens, sample.generation.tokens, sample.generation.logprobs, weight * value)
        for sample, weight, value in zip(samples, weights, values.tolist(), strict=True)
    ]


def _batch(sample: Sample, config: LearnerConfig) -> Hashable:
    """Name the batch in which a sample is whitened."""
    return {"member": (), "pooled": sample.role, "per_type": (sample.role, sample.task)}[config.whitening]


def _weights(samples: Sequence[Sample], sizes: Sequence[int], config: LearnerConfig) -> list[float]:
    """Return the weights that turn the learner's mean over all tokens into the mean by ``sizes``, the weights of sequences in means over
    sequences, or into the mean of the roles' means."""
    lengths, of_role = [len(sample.generation.tokens) for sample in samples], Counter[str]()
    for sample, size in zip(samples, sizes, strict=True):
        of_role[sample.role] += size
    total = of_role if config.role_weights == "equal" else dict.fromkeys(of_role, of_role.total())
    roles, tokens = len(of_role) if config.role_weights == "equal" else 1, sum(lengths)
    return [
        tokens * size / (roles * total[sample.role] * length) if length else 0.0
        for sample, size, length in zip(samples, sizes, lengths, strict=True)
    ]
