"""Phase 4, the pure part: rho, rewards (Eq. 1 and 2), matchup outcomes and rating updates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from populora.core.config import Config, LeagueConfig
from populora.core.types import Attempt, Matchup, Proposal
from populora.training.population import Population
from populora.training.ratings import decide, update
from populora.training.rewards import student_reward, teacher_reward


@dataclass(frozen=True)
class Outcome:
    """Rewards of a step. ``teacher_rewards``, ``rhos`` and ``void`` align with the proposals (rho is None where the problem
    is invalid or void, the reward where it is void), ``student_rewards`` and ``trained`` with the attempts."""

    matchups: tuple[Matchup, ...]
    teacher_rewards: tuple[float | None, ...]
    rhos: tuple[float | None, ...]
    void: tuple[bool, ...]
    student_rewards: tuple[float, ...]
    trained: tuple[bool, ...]


def cross_evaluate(
    config: Config,
    matchups: Sequence[Matchup],
    proposals: Sequence[Proposal],
    attempts: Sequence[Attempt],
    trained_ids: set[tuple[str, str]],
) -> Outcome:
    """Score a step. rho of a problem is the share of its student's attempts that solve it; a problem whose gold value
    did not reproduce is void for both sides (no reward, no training, no game)."""
    solved: dict[str, list[bool]] = defaultdict(list)
    void_ids = {attempt.problem.id for attempt in attempts if attempt.void}
    for attempt in attempts:
        if not attempt.filled and not attempt.void:
            solved[attempt.problem.id].append(attempt.correct)
    rhos = tuple(fmean(solved[p.problem.id]) if p.problem and p.problem.id in solved else None for p in proposals)
    void = tuple(bool(p.problem and p.problem.id in void_ids) for p in proposals)
    teacher = tuple(
        None if is_void else teacher_reward(p.problem is not None, rho, config.rewards)
        for p, rho, is_void in zip(proposals, rhos, void, strict=True)
    )
    student = tuple(student_reward(a.formatted, a.correct, config.rewards) for a in attempts)
    trained = tuple((a.student, a.problem.id) in trained_ids and not a.void for a in attempts)
    own: dict[str, list[float]] = defaultdict(list)
    for proposal, rho in zip(proposals, rhos, strict=True):
        if rho is not None:
            own[proposal.author].append(rho)
    return Outcome(tuple(_decided(m, own.get(m.teacher, []), config.league) for m in matchups), teacher, rhos, void, student, trained)


def _decided(matchup: Matchup, own: Sequence[float], league: LeagueConfig) -> Matchup:
    """The matchup with the mean of its teacher's ``own`` rhos and its winner; without a valid problem there is no game (reading 17)."""
    if not own:
        return matchup
    mean_rho = fmean(own)
    if matchup.teacher == matchup.student:
        return replace(matchup, mean_rho=mean_rho)
    return replace(matchup, mean_rho=mean_rho, outcome=decide(matchup.expected, mean_rho, league.outcome, league.threshold))


def rate(population: Population, matchups: Sequence[Matchup], league: LeagueConfig) -> Population:
    """The population after one TrueSkill game per decided matchup, in order."""
    ratings = {member.id: member.rating for member in population.members}
    for matchup in matchups:
        if matchup.outcome == "none":
            continue
        student_won = matchup.outcome == "student"
        winner, loser = (matchup.student, matchup.teacher) if student_won else (matchup.teacher, matchup.student)
        ratings[winner], ratings[loser] = update(ratings[winner], ratings[loser], league)
    return population.rated(ratings)
