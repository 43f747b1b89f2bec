"""Phase 5, the choices: members to replace, their parents and the operator (paper, "Training Step", phase 5).

Members are ranked within their role by the lower confidence bound mu - k sigma. The bottom ``cull_fraction`` is replaced, parents
come from the top half. As a control, ``evolution.cull = "random"`` replaces anybody. Three rules go beyond the paper's text. A newborn is
passed over at the first evolution after its birth, unless ``evolution.protect_newborns`` is off. A teacher that hardly makes a valid
problem of some type is broken: it plays no games with that type, so that its rating does not fall for it, and it hardly gets a signal to
learn the type again. It is replaced first, and chosen as a parent last (``evolution.broken_valid_rate``). A child is rated like its
parents, with a larger sigma. With ``evolution.teacher_fitness = "reward"`` teachers are ranked by what they earned.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from populora.core.config import EvolutionConfig
from populora.core.errors import ConfigError, PopuloraError
from populora.core.types import Member, Rating
from populora.training.ratings import lower_bound


class Culled(NamedTuple):
    """A ``cull_fraction`` of one role."""

    culled: tuple[Member, ...]
    """Those that are replaced."""
    spared: tuple[Member, ...]
    """The newborns among them, which stay. Nobody else is replaced instead."""


class Interval(NamedTuple):
    """What teachers did since the last evolution, by id."""

    valid_rates: Mapping[str, float]
    """Share of valid proposals, of the type in which it is smallest."""
    rewards: Mapping[str, float]
    """Mean reward of the proposals of those that are ranked by it, and not by rating."""


def cull_count(size: int, cull_fraction: float) -> int:
    """Return ``floor(cull_fraction * size)``, but at least one of two or more, and 0 for one alone or a ``cull_fraction`` of 0."""
    if size < 2 or cull_fraction == 0:
        return 0
    return min(max(1, math.floor(cull_fraction * size + 1e-9)), size - 1)


def select_culled(members: Sequence[Member], settings: EvolutionConfig, step: int, interval: Interval, rng: np.random.Generator) -> Culled:
    """Select `cull_count` members of one role after ``step``, the weakest, or any where ``cull`` is ``random``.

    Newborns (``protected_until >= step``) among them are spared. Equal strengths are decided by the share of valid proposals, then by the
    slot. ``rng`` is for ``random`` alone.
    """
    ranked = _by_strength(members, settings, step, interval)
    if settings.cull == "random":
        ranked = [ranked[int(index)] for index in rng.permutation(len(ranked))]
    bottom = ranked[: cull_count(len(ranked), settings.cull_fraction)]
    return Culled(
        culled=tuple(member for member in bottom if member.protected_until < step),
        spared=tuple(member for member in bottom if member.protected_until >= step),
    )


def broken_teachers(valid_rates: Mapping[str, float], settings: EvolutionConfig) -> tuple[str, ...]:
    """Return the ids whose share of valid proposals, of the type in which it is smallest, is below ``broken_valid_rate``."""
    return tuple(author for author, rate in valid_rates.items() if rate < settings.broken_valid_rate)


def _by_strength(members: Sequence[Member], settings: EvolutionConfig, step: int, interval: Interval) -> list[Member]:
    """Sort the members of one role, weakest first. A broken newborn does not go first: it would be spared, and the others with it."""
    broken = broken_teachers(interval.valid_rates, settings)

    def strength(member: Member) -> tuple[bool, float, float, int]:
        sound = member.id not in broken or member.protected_until >= step
        return sound, _fitness(member, settings, interval), interval.valid_rates.get(member.id, 1.0), member.slot

    return sorted(members, key=strength)


def _fitness(member: Member, settings: EvolutionConfig, interval: Interval) -> float:
    return interval.rewards.get(member.id, lower_bound(member.rating, settings.lcb_k))


def choose_operator(arities: Mapping[str, int], parents_available: int, rng: np.random.Generator) -> str:
    """Draw an operator's name, uniformly among those that need at most ``parents_available`` parents.

    ``arities`` maps names to numbers of parents. Raises `ConfigError` when none fits.
    """
    fitting = [name for name, arity in arities.items() if arity <= parents_available]
    if not fitting:
        raise ConfigError(
            f"evolution.operators {tuple(arities)} all need more than the {parents_available} parent(s) that are left: "
            "add a mutation such as 'm1', or more members"
        )
    return fitting[int(rng.integers(len(fitting)))]


def choose_parents(
    members: Sequence[Member],
    culled: Sequence[Member],
    arity: int,
    settings: EvolutionConfig,
    interval: Interval,
    rng: np.random.Generator,
) -> tuple[Member, ...]:
    """Draw ``arity`` distinct parents in random order, uniformly from the top half (rounded up) of one role's ``members``.

    The culled are no parents, and broken teachers rank last. Raises `PopuloraError` when there are too few.
    """
    gone = {member.id for member in culled}
    broken = broken_teachers(interval.valid_rates, settings)

    def rank(member: Member) -> tuple[bool, float, int]:
        return member.id in broken, -_fitness(member, settings, interval), member.slot

    ranked = sorted((member for member in members if member.id not in gone), key=rank)
    top = ranked[: math.ceil(len(members) / 2)]
    if len(top) < arity:
        raise PopuloraError(f"expected {arity} distinct parents, got {len(top)}: choose an operator that needs fewer")
    return tuple(top[int(index)] for index in rng.choice(len(top), size=arity, replace=False))


def child_rating(parents: Sequence[Rating], child_sigma: float) -> Rating:
    """Return a newborn's rating: the parents' mean mu, and the largest of their sigmas but at least ``child_sigma``."""
    return Rating(fmean(parent.mu for parent in parents), max(child_sigma, *(parent.sigma for parent in parents)))
