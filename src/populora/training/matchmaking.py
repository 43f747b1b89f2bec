"""Phase 1 of a step: pair students with teachers (paper, "Training Step" and "TrueSkill and matchmaking details").

Prioritised fictitious self-play weights a pair by p (1 - p) + floor, where p is the predicted probability that the student
wins: near-balanced games are the informative ones. The floor keeps every pairing possible. Every teacher gets exactly one
student; with as many students as teachers that is a one-to-one assignment, which gives all adapters equal work.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from populora.core.config import Config, LeagueConfig
from populora.core.errors import ConfigError
from populora.core.rng import stream
from populora.core.types import Matchup, Member
from populora.training.population import Population
from populora.training.ratings import win_probability


def match(population: Population, config: Config, step: int) -> list[Matchup]:
    """Draw the matchups of a step. The single agent meets itself, with an expectation of 0.5 that no rated game uses."""
    return pair(population.proposers, population.solvers, config.league, stream(config.seed, "matchmaking", step))


def pfsp_weight(p: NDArray[np.float64], floor: float) -> NDArray[np.float64]:
    """Return the unnormalised chances [n] of pairings whose student wins with probability ``p`` [n]."""
    return p * (1.0 - p) + floor


def pair(teachers: Sequence[Member], students: Sequence[Member], league: LeagueConfig, rng: np.random.Generator) -> list[Matchup]:
    """Draw one matchup per teacher, in the order of ``teachers``; ``expected`` is the student's predicted win probability.

    Teachers choose in random order and without replacement. With more teachers than students the pool is refilled each
    time it empties, so students' loads differ by one at most; with fewer, some students meet nobody and train on the buffer's problems.
    An agent that is both meets itself only if the pool has nobody else.
    Raises `ConfigError` when ``pfsp_floor`` leaves a teacher without a possible student.
    """
    matchups: dict[str, Matchup] = {}
    ids = np.array([student.id for student in students])
    mu, sigma = (np.array([getattr(student.rating, name) for student in students]) for name in ("mu", "sigma"))
    pool = np.arange(0)  # indices of students
    order: list[int] = rng.permutation(len(teachers)).tolist()
    for teacher in (teachers[index] for index in order):
        pool = pool if len(pool) else np.arange(len(students))
        others = pool[ids[pool] != teacher.id]
        others = others if len(others) else pool
        expected = win_probability(mu[others], sigma[others], teacher.rating, league.beta)
        weights = pfsp_weight(expected, league.pfsp_floor)
        if not weights.min() >= 0.0 or not weights.sum() > 0.0:
            raise ConfigError(
                f"league.pfsp_floor {league.pfsp_floor} leaves {teacher.id} no student to draw: expected a small number above 0"
            )
        choice = rng.choice(len(others), p=weights / weights.sum())
        student = int(others[choice])
        pool = pool[pool != student]
        matchups[teacher.id] = Matchup(teacher.id, students[student].id, float(expected[choice]))
    return [matchups[teacher.id] for teacher in teachers]
