"""Phase 5 of a step: every k steps the weakest of each role are replaced by children of the strongest (paper, 3.3–3.4)."""

from dataclasses import replace
from typing import NamedTuple

from populora.adapters.operators import get_operator
from populora.core.config import Config
from populora.core.errors import ConfigError
from populora.core.rng import stream
from populora.core.types import Lineage, Member, Role
from populora.engine.bank import Bank, Birth
from populora.runs.step_record import Evolution
from populora.training.culling import Interval, broken_teachers, child_rating, choose_operator, choose_parents, cull_count, select_culled
from populora.training.population import Population
from populora.training.run import Run


def evolution_due(config: Config, step: int) -> bool:
    """Return True after the update of steps k, 2k, …, except the last: a child must not be judged untrained (reading 25)."""
    every = config.evolution.every
    return every > 0 and step % every == 0 and step < config.steps and not config.population.single_agent


def check_operators(config: Config) -> None:
    """Raise `ConfigError` before a run for an operator that does not exist or could never be used."""
    if config.population.single_agent or not config.evolution.every:
        return
    operators = {name: get_operator(name) for name in config.evolution.operators}
    named = [operators[name].name for name in config.evolution.operators]
    if repeated := sorted({name for name in named if named.count(name) > 1}):
        raise ConfigError(f"evolution.operators: expected each operator once, got {', '.join(repeated)} more than once")
    fewest = min(operator.arity for operator in operators.values())
    ranks = config.lora.ranks or (config.lora.rank,) * config.population.members
    replaced = first = 0
    sizes = config.population
    for role, size in [("agents", sizes.agents)] if sizes.agents else [("teachers", sizes.teachers), ("students", sizes.students)]:
        culled, rank = cull_count(size, config.evolution.cull_fraction), min(ranks[first : first + size])
        replaced, first = replaced + culled, first + size
        if culled and fewest > size - culled:
            raise ConfigError(
                f"evolution.operators {', '.join(operators)} all need {fewest} parents, but of {size} {role} "
                f"{size - culled} are left when the weakest go: add a mutation (m1 to m4) or members, or cull fewer"
            )
        for name, operator in operators.items():
            if culled and operator.arity <= size - culled and operator.min_rank > rank:
                raise ConfigError(f"operator '{name}' needs lora.rank {operator.min_rank} or more, got {rank}: leave it out of the pool")
    if replaced and config.evolution.min_basis_cosine > -1.0 and all(operator.mixes_factors for operator in operators.values()):
        raise ConfigError(
            f"evolution.operators {', '.join(operators)} all mix factors, which evolution.min_basis_cosine "
            f"{config.evolution.min_basis_cosine} forbids to parents without a common basis: add another, such as x2, or set it to -1"
        )


def evolve_if_due(run: Run, step: int) -> Evolution:
    """Breed and replace when the step is due, and return a record of it."""
    if not evolution_due(run.config, step):
        return Evolution()
    valid_rates = {author: min(valid / total for valid, total in types.values()) for author, types in run.valid_counts.items()}
    by_reward = run.config.evolution.teacher_fitness == "reward"
    rewards = {author: total / count for author, (total, count) in run.reward_sums.items() if by_reward}
    interval = Interval(valid_rates, rewards)
    run.population, children, parents, spared = evolve(run.population, run.bank, run.config, step, interval)
    run.valid_counts, run.reward_sums = {}, {}
    run.sync_weights(child.slot for child in children)
    return Evolution(
        children=tuple(child.lineage for child in children),
        parents=parents,
        spared=tuple(member.id for member in spared),
        broken=broken_teachers(valid_rates, run.config.evolution),
    )


class Evolved(NamedTuple):
    """The population after an evolution."""

    population: Population
    children: list[Member]
    """In the order of slots."""
    parents: dict[str, int]
    """Slots of the children's parents by name, which stay until the next update; none where ``evolution.keep_parents`` is off."""
    spared: list[Member]
    """Newborns that were to be replaced, and stayed."""


def evolve(population: Population, bank: Bank, config: Config, step: int, interval: Interval) -> Evolved:
    """Replace ``cull_fraction`` of each role, the weakest by default; the bank's slots change in place.

    A teacher that was broken in the ``interval`` goes first (reading 17). Parents are read before any slot is written, so a child never
    descends from a child of the same step.
    """
    newborn: list[tuple[Member, Birth]] = []
    spared: list[Member] = []
    for role in Role:
        members = population.role(role)
        bottom = select_culled(members, config.evolution, step, interval, stream(config.seed, "evolve", step, "cull", role))
        newborn += [_child(member, members, bottom.culled, bank, config, step, interval) for member in bottom.culled]
        spared += bottom.spared
    births = [birth for _, birth in newborn]
    parents = {name: slot for birth in births for name, slot in zip(birth.names, birth.parents, strict=True)}
    children = [replace(child, lineage=lineage) for (child, _), lineage in zip(newborn, bank.breed(births), strict=True)]
    for child in children:
        population = population.replaced(child)
    children.sort(key=lambda child: child.slot)
    return Evolved(population, children, dict(sorted(parents.items())) if config.evolution.keep_parents else {}, spared)


def _child(
    culled_member: Member,
    members: tuple[Member, ...],
    culled: tuple[Member, ...],
    bank: Bank,
    config: Config,
    step: int,
    interval: Interval,
) -> tuple[Member, Birth]:
    """Choose operator and parents of the child that replaces ``culled_member``. Returns it without its record, and its birth."""
    settings = config.evolution
    name = ("evolve", step, culled_member.id)
    rng = stream(config.seed, *name, "choice")
    pool = {operator.name: operator for operator in map(get_operator, settings.operators)}
    available = len(members) - len(culled)
    operator = pool[choose_operator({name: operator.arity for name, operator in pool.items()}, available, rng)]
    parents = choose_parents(members, culled, operator.arity, settings, interval, rng)
    if operator.mixes_factors and bank.basis_cosine([parent.slot for parent in parents]) < settings.min_basis_cosine:
        others = {name: operator.arity for name, operator in pool.items() if not operator.mixes_factors}
        operator = pool[choose_operator(others, available, rng)]
        parents = parents[: operator.arity]
    generation = culled_member.lineage.generation + 1
    plan = Lineage(culled_member.id, generation, step, operator.name, stream=name, refactor=settings.refactor, seed=config.seed)
    slots, names = tuple(parent.slot for parent in parents), tuple(parent.lineage.name for parent in parents)
    rating = child_rating([parent.rating for parent in parents], settings.child_sigma)
    protected_until = step + settings.every if settings.protect_newborns else step
    child = replace(culled_member, rating=rating, protected_until=protected_until)
    return child, Birth(culled_member.slot, slots, names, plan)
