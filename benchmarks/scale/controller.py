"""CPU seconds of the controller's own functions in one step, measured on one core, with the real functions on made-up results.

Proposals are 576 a teacher, seven of ten valid, and each valid problem has eight attempts of the matched student, as in the paper. All
responses are one object: texts and tokens play no part in these functions. Sampling, verification and learning run elsewhere.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from synthetic import PROMPTS, SAMPLES

from populora.adapters.operators import get_operator
from populora.core.config import Config
from populora.core.types import TASK_TYPES, Attempt, Example, Generation, Lineage, Matchup, Member, Problem, Proposal, Rating, Role
from populora.training.buffer import ProblemBuffer
from populora.training.culling import child_rating, choose_operator, choose_parents, to_cull
from populora.training.matchmaking import pair
from populora.training.population import Population, rate
from populora.training.rewards import cross_evaluate
from populora.training.train_rows import Sample, member_rows

VALID = 0.7
RESPONSE = Generation("", (1,) * 500, (1,) * 1000, (-1.0,) * 1000, 0.5)


def measure(members: int, seed: int = 0) -> dict[str, Any]:
    """Seconds by function for half of ``members`` teachers and half students."""
    rng, config = np.random.default_rng(seed), Config()
    teachers, students = (_members(role, members // 2, rng) for role in (Role.TEACHER, Role.STUDENT))
    population = Population((*teachers, *students))
    seconds: dict[str, float] = {}
    matchups: list[Matchup] = _timed(seconds, "matchmaking", lambda: pair(teachers, students, config.league, rng))
    proposals, attempts = _results(matchups, rng)
    ids = {(attempt.student, attempt.problem.id) for attempt in attempts}
    outcome = _timed(seconds, "rewards and outcomes", lambda: cross_evaluate(config, matchups, proposals, attempts, ids))
    population = _timed(seconds, "ratings", lambda: rate(population, outcome.matchups, config.league))
    _timed(seconds, "advantages and rows", lambda: _rows(population, rng))
    _timed(seconds, "evolution: choices", lambda: _choices(population, config, rng))
    _timed(seconds, "buffer: new problems", lambda: _stored(proposals))
    buffer = _filled(config.selfplay.buffer_size)
    _timed(seconds, "buffer: references", lambda: _references(buffer, members // 2, rng))
    counts = {"proposals": len(proposals), "valid": sum(p.problem is not None for p in proposals), "attempts": len(attempts)}
    return {"members": members, **counts, "seconds": {name: round(value, 4) for name, value in seconds.items()}}


def _timed(seconds: dict[str, float], name: str, work: Callable[[], Any]) -> Any:
    gc.collect()
    started = time.process_time()
    result = work()
    seconds[name] = time.process_time() - started
    return result


def _members(role: Role, count: int, rng: np.random.Generator) -> list[Member]:
    prefix, first = ("T", 0) if role is Role.TEACHER else ("S", count)
    return [
        Member(f"{prefix}{n}", role, first + n, Rating(25.0 + float(rng.normal(0, 3)), 2.0), Lineage(f"{prefix}{n}", 0, 0))
        for n in range(count)
    ]


def _results(matchups: Sequence[Matchup], rng: np.random.Generator) -> tuple[list[Proposal], list[Attempt]]:
    proposals: list[Proposal] = []
    attempts: list[Attempt] = []
    for matchup in matchups:
        for number in range(PROMPTS * SAMPLES):
            task, name = TASK_TYPES[number % 3], f"{matchup.teacher}-{number}"
            problem = Problem(name, task, "", (Example("1", "2"),), author=matchup.teacher) if rng.random() < VALID else None
            proposals.append(Proposal(matchup.teacher, task, number // SAMPLES, RESPONSE, True, problem))
            if problem:
                solved = rng.random(SAMPLES) < 0.5
                attempts += [Attempt(matchup.student, problem, RESPONSE, True, correct) for correct in solved.tolist()]
    return proposals, attempts


def _rows(population: Population, rng: np.random.Generator) -> None:
    rewards = rng.random(PROMPTS * SAMPLES).tolist()
    for member in population.members:
        samples = [Sample(RESPONSE, reward, number // SAMPLES, "solve", TASK_TYPES[number % 3]) for number, reward in enumerate(rewards)]
        member_rows(member.slot, samples, "pooled")


def _choices(population: Population, config: Config, rng: np.random.Generator) -> None:
    settings = config.evolution
    arities = {name: get_operator(name).arity for name in settings.operators}
    for role in (Role.TEACHER, Role.STUDENT):
        members = population.role(role)
        culled = to_cull(members, settings.cull_fraction, settings.lcb_k, step=10)
        for _ in culled:
            operator = choose_operator(arities, len(members) - len(culled), rng)
            parents = choose_parents(members, culled, arities[operator], settings.lcb_k, rng)
            child_rating([parent.rating for parent in parents], settings.child_sigma)


def _stored(proposals: Sequence[Proposal]) -> None:
    buffer = ProblemBuffer(Config().selfplay.buffer_size)
    for proposal in proposals:
        if proposal.problem:
            buffer.add(proposal.problem, proposal.problem.id)


def _filled(capacity: int) -> ProblemBuffer:
    buffer = ProblemBuffer(capacity)
    for task in TASK_TYPES:
        for number in range(capacity):
            buffer.add(Problem(f"{task}-{number}", task, "", (Example("1", "2"),)), f"{task}-{number}")
    return buffer


def _references(buffer: ProblemBuffer, teachers: int, rng: np.random.Generator) -> None:
    for _ in range(teachers):
        for number in range(PROMPTS):
            buffer.references(TASK_TYPES[number % 3], 6, rng)
