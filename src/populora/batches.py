"""Phase 4 of a step, the batch: which rollouts train which member, and with which advantages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from populora.crosseval import Outcome
from populora.learner.learner import TrainRow
from populora.rl.advantages import advantages
from populora.state import Run
from populora.types import Attempt, Generation, Proposal


def train_rows(run: Run, proposals: Sequence[Proposal], attempts: Sequence[Attempt], outcome: Outcome) -> list[TrainRow]:
    """Rows of the mixed batch: each member's own rollouts with advantages centred per prompt and whitened per member."""
    samples: dict[str, list[tuple[Generation, float, tuple, str]]] = {member.id: [] for member in run.population.members}
    for proposal, reward in zip(proposals, outcome.teacher_rewards, strict=True):
        if reward is not None:
            samples[proposal.author].append((proposal.generation, reward, ("propose", proposal.group), f"propose {proposal.task}"))
    for attempt, reward, used in zip(attempts, outcome.student_rewards, outcome.trained, strict=True):
        if used:
            key = ("solve", attempt.problem.id)
            samples[attempt.student].append((attempt.generation, reward, key, f"solve {attempt.problem.task}"))
    rows: list[TrainRow] = []
    for member in run.population.members:
        rows += member_rows(member.slot, samples[member.id], run.config.learner.whitening)
    return rows


def member_rows(slot: int, samples: list[tuple[Generation, float, tuple, str]], whitening: str) -> list[TrainRow]:
    """Rows of one member from (generation, reward, prompt group, task) samples."""
    if not samples:
        return []
    generations, rewards, groups, types = zip(*samples, strict=True)
    lengths = np.array([len(generation.tokens) for generation in generations])
    values = advantages(np.array(rewards), groups, lengths, types, whitening)
    return [
        TrainRow(slot, generation.prompt_tokens, generation.tokens, generation.logprobs, float(value))
        for generation, value in zip(generations, values, strict=True)
    ]
