"""Phase 4 of a step, the batch: which rollouts train which member, and with which advantages.

Whitening pools a member's task types (the paper; ``learner.whitening = "per_type"`` keeps them apart), but never members, whose
updates it would couple, nor the two roles of the single agent: a teacher's or a student's batch has one role, and Absolute
Zero's code has a batch for each. Pooled, the mean reward of proposals without peers would count as their advantage.

In its loss the agent's roles weigh by their tokens, as a mean over the whole batch has it (the paper), or half each
(``learner.role_weights = "equal"``). In the paper both have equally many sequences and the two nearly agree; where
``rho_samples`` attempts stand against one proposal a prompt, proposing has little weight in the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from populora.core.types import Attempt, Generation, Proposal, TaskType
from populora.engine.learning.batching import TrainRow
from populora.training.advantages import advantages
from populora.training.cross_evaluation import Outcome
from populora.training.run import Run


@dataclass(frozen=True)
class Sample:
    """A rollout with its reward, the prompt group it is centred in, and what it was for."""

    generation: Generation
    reward: float
    group: Hashable
    role: Literal["propose", "solve"]
    task: TaskType


def train_rows(run: Run, proposals: Sequence[Proposal], attempts: Sequence[Attempt], outcome: Outcome) -> list[TrainRow]:
    """Rows of the mixed batch: each member's own rollouts with advantages centred per prompt and whitened per member and role."""
    samples: dict[str, list[Sample]] = {member.id: [] for member in run.population.members}
    for proposal, reward in zip(proposals, outcome.teacher_rewards, strict=True):
        if reward is not None:
            key = ("propose", proposal.group)
            samples[proposal.author].append(Sample(proposal.generation, reward, key, "propose", proposal.task))
    for attempt, reward, used in zip(attempts, outcome.student_rewards, outcome.trained, strict=True):
        if used:
            key = ("solve", attempt.problem.id)
            samples[attempt.student].append(Sample(attempt.generation, reward, key, "solve", attempt.problem.task))
    rows: list[TrainRow] = []
    for member in run.population.members:
        rows += member_rows(member.slot, samples[member.id], run.config.learner.whitening, run.config.learner.role_weights)
    return rows


def member_rows(slot: int, samples: Sequence[Sample], whitening: str, role_weights: str = "tokens") -> list[TrainRow]:
    """Rows of one member; ``whitening`` and ``role_weights`` as in `LearnerConfig`."""
    values = advantages(
        [sample.reward for sample in samples],
        [sample.group for sample in samples],
        [len(sample.generation.tokens) for sample in samples],
        [(sample.role, sample.task if whitening == "per_type" else None) for sample in samples],
    )
    weights = _equal_weights(samples) if role_weights == "equal" else {"propose": 1.0, "solve": 1.0}
    return [
        TrainRow(slot, sample.generation.prompt_tokens, sample.generation.tokens, sample.generation.logprobs, weights[sample.role] * value)
        for sample, value in zip(samples, values.tolist(), strict=True)
    ]


def _equal_weights(samples: Sequence[Sample]) -> dict[str, float]:
    """By role, what turns the learner's mean over all tokens into the mean of the roles' own means: 1 where there is one role."""
    tokens = Counter[str]()
    for sample in samples:
        tokens[sample.role] += len(sample.generation.tokens)
    return {role: tokens.total() / (len(tokens) * count) if count else 0.0 for role, count in tokens.items()}
