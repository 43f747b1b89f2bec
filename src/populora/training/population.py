"""Members of the population and what happens to them: creation, ratings, replacement. Immutable; the step makes new ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from populora.core.config import Config
from populora.core.types import Lineage, Member, Rating, Role


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

    def get(self, member_id: str) -> Member:
        return next(member for member in self.members if member.id == member_id)

    def rated(self, ratings: Mapping[str, Rating]) -> Population:
        """The population with new ratings for the members named."""
        return Population(tuple(replace(m, rating=ratings.get(m.id, m.rating)) for m in self.members))

    def replaced(self, child: Member) -> Population:
        """The population with ``child`` in the place of the member of the same id."""
        return Population(tuple(child if member.id == child.id else member for member in self.members))


def initial_population(config: Config) -> Population:
    """Teachers ``T0…`` and students ``S0…``, or the single agent ``A0`` of the baseline; one bank slot each."""
    sizes = config.population
    names = [(f"T{index}", Role.TEACHER) for index in range(sizes.teachers)]
    names += [(f"S{index}", Role.STUDENT) for index in range(sizes.students)]
    if sizes.single_agent:
        names = [("A0", Role.AGENT)]
    prior = Rating(config.league.mu, config.league.sigma)
    return Population(
        tuple(Member(name, role, slot, prior, Lineage(name, generation=0, born=0)) for slot, (name, role) in enumerate(names))
    )
