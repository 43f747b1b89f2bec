"""The members of the population: creation, ratings, replacement. Immutable; every step makes a new one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from populora.core.config import Config, LeagueConfig
from populora.core.types import Lineage, Matchup, Member, Rating, Role
from populora.training.ratings import update


@dataclass(frozen=True)
class Population:
    """All members, teachers first, in the order of their slots."""

    members: tuple[Member, ...]

    @property
    def proposers(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.role is not Role.STUDENT)

    @property
    def solvers(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.role is not Role.TEACHER)

    def role(self, role: Role) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.role is role)

    @property
    def slots(self) -> dict[str, int]:
        """Slots in the bank by member id."""
        return {member.id: member.slot for member in self.members}

    def get(self, member_id: str) -> Member:
        return self._by_id[member_id]

    @cached_property
    def _by_id(self) -> dict[str, Member]:
        return {member.id: member for member in self.members}

    def replaced(self, child: Member) -> Population:
        """Return the population with ``child`` instead of the member with the same id."""
        return Population(tuple(child if member.id == child.id else member for member in self.members))


def initial_population(config: Config) -> Population:
    """Create teachers ``T0…`` and students ``S0…``, or agents ``A0…`` that are both, such as the baseline's one; one bank slot each."""
    sizes = config.population
    names = [(f"T{index}", Role.TEACHER) for index in range(sizes.teachers)]
    names += [(f"S{index}", Role.STUDENT) for index in range(sizes.students)]
    if sizes.agents:
        names = [(f"A{index}", Role.AGENT) for index in range(sizes.agents)]
    prior = Rating(config.league.mu, config.league.sigma)
    return Population(
        tuple(Member(name, role, slot, prior, Lineage(name, generation=0, born=0)) for slot, (name, role) in enumerate(names))
    )


def rate(population: Population, matchups: Sequence[Matchup], league: LeagueConfig) -> Population:
    """Play one TrueSkill game per decided matchup, in order. Where neither won, the teacher is rated as the
    loser, and the student, which may have lost against impossible problems, is not rated."""
    ratings = {member.id: member.rating for member in population.members}
    for matchup in matchups:
        if matchup.outcome == "none":
            continue
        student, teacher = ratings[matchup.student], ratings[matchup.teacher]
        if matchup.outcome == "student":
            student, teacher = update(student, teacher, league)
        elif matchup.outcome == "teacher":
            teacher, student = update(teacher, student, league)
        else:
            teacher = update(student, teacher, league)[1]
        ratings[matchup.student], ratings[matchup.teacher] = student, teacher
    return Population(tuple(replace(member, rating=ratings[member.id]) for member in population.members))
