"""Solving problems that are given, without proposers: attempts of many adapters at a time, and a step of learning from them.

What the retention benchmark and the tiny base's room train with; rewards, advantages and the update are those of self-play.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from populora.core.types import Attempt, Problem, Request
from populora.engine.learning.update import SlotUpdate
from populora.tasks.render import solve_prompt
from populora.tasks.verifier import AttemptEntry
from populora.training.batch import Sample, member_rows
from populora.training.rewards import student_reward
from populora.training.run import Run

Exercise = tuple[Request, Problem]


def exercise(run: Run, problem: Problem, slot: int, samples: int, key: tuple[str | int, ...]) -> Exercise:
    """``samples`` attempts of one slot's adapter at a problem; ``key`` names their random stream."""
    return Request(solve_prompt(run.prompts, problem), slot, samples, key), problem


def solve(run: Run, exercises: Sequence[Exercise], temperature: float = 1.0) -> list[list[Attempt]]:
    """The judged attempts of each exercise, in order. Raises as the sampler and the verifier do."""
    limit, stop = run.config.selfplay.max_response_tokens, run.prompts.stop
    responses = run.sampler.generate([request for request, _ in exercises], limit, temperature, stop)
    pairs = [(str(request.slot), problem, one) for (request, problem), many in zip(exercises, responses, strict=True) for one in many]
    judged = iter(run.verifier.judge([AttemptEntry(*pair) for pair in pairs]))
    return [[next(judged) for _ in many] for many in responses]


def learn(run: Run, attempts: Mapping[int, Sequence[Attempt]]) -> dict[int, SlotUpdate]:
    """One update of each slot from its own attempts, as a student learns. Void attempts carry no reward and are left out."""
    config, rows = run.config, []
    for slot, own in attempts.items():
        paid = [(one, student_reward(one.formatted, one.correct, config.rewards)) for one in own if not one.void]
        samples = [Sample(one.generation, reward, one.problem.id, "solve", one.problem.task) for one, reward in paid]
        rows += member_rows(slot, samples, config.learner.whitening)
    updates = run.learner.update(rows)
    run.publish(updates)
    return updates
