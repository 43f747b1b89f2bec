"""Phase 5 of a step: every k steps the weakest of each role are replaced by children of the strongest (paper, 3.3–3.4)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from populora.adapters.adapter import Adapter
from populora.adapters.operators import get_operator
from populora.adapters.operators.breeding import breed
from populora.adapters.operators.similarity import basis_cosine
from populora.adapters.peft_format import peft_files
from populora.core.config import Config
from populora.core.errors import ConfigError
from populora.core.rng import stream
from populora.core.types import Lineage, Member, Role
from populora.engine.model.bank import LoraBank
from populora.engine.model.loading import base_name
from populora.runs.step_record import Evolution
from populora.training.culling import BROKEN_VALID_RATE, child_rating, choose_operator, choose_parents, cull_count, select_culled
from populora.training.population import Population
from populora.training.run import Run


def evolution_due(config: Config, step: int) -> bool:
    """Return True after the update of steps k, 2k, …, except the last: a child must not be judged untrained (reading 25)."""
    every = config.evolution.every
    return every > 0 and step % every == 0 and step < config.steps


def check_operators(config: Config) -> None:
    """Raise `ConfigError` before a run for an operator that does not exist or could never be used."""
    if config.population.single_agent or not config.evolution.every:
        return
    operators = {name: get_operator(name) for name in config.evolution.operators}
    fewest = min(operator.arity for operator in operators.values())
    rank = min(config.lora.ranks or (config.lora.rank,))
    replaced = 0
    sizes = config.population
    for role, size in [("agents", sizes.agents)] if sizes.agents else [("teachers", sizes.teachers), ("students", sizes.students)]:
        culled = cull_count(size, config.evolution.cull_fraction)
        replaced += culled
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
    if run.config.population.single_agent or not evolution_due(run.config, step):
        return Evolution()
    valid_rates = {author: min(valid / total for valid, total in types.values()) for author, types in run.valid_counts.items()}
    run.population, children, parents, spared = evolve(run.population, run.bank, run.config, step, valid_rates)
    run.valid_counts = {}
    run.sync_weights(child.slot for child in children)
    base, targets = base_name(run.config.base), run.config.lora.targets
    return Evolution(
        children=tuple(child.lineage for child in children),
        parents={name: peft_files(parent, base, targets) for name, parent in parents.items()},
        spared=tuple(member.id for member in spared),
        broken=tuple(author for author, rate in valid_rates.items() if rate < BROKEN_VALID_RATE),
    )


class Evolved(NamedTuple):
    """The population after an evolution."""

    population: Population
    children: list[Member]
    """In the order of slots."""
    parents: dict[str, Adapter]
    """Copies of the children's parents by name, from which a child can be bred again; none where ``evolution.keep_parents`` is off."""
    spared: list[Member]
    """Newborns that were to be replaced, and stayed."""


def evolve(population: Population, bank: LoraBank, config: Config, step: int, valid_rates: Mapping[str, float]) -> Evolved:
    """Replace ``cull_fraction`` of each role, the weakest by default; the bank's slots change in place.

    ``valid_rates`` are by teacher the share of valid proposals since the last evolution, of the type in which it is smallest: a broken
    teacher goes first (reading 17). Parents are read before any slot is written, so a child never descends from a child of the same step.
    """
    newborn: list[tuple[Member, Adapter]] = []
    spared: list[Member] = []
    for role in Role:
        members = population.role(role)
        bottom = select_culled(members, config.evolution, step, valid_rates, stream(config.seed, "evolve", step, "cull", role))
        newborn += [_child(member, members, bottom.culled, bank, config, step, valid_rates) for member in bottom.culled]
        spared += bottom.spared
    names = {name for child, _ in newborn for name in child.lineage.parent_names} if config.evolution.keep_parents else set[str]()
    parents = {member.lineage.name: bank.adapter(member.slot) for member in population.members if member.lineage.name in names}
    for child, adapter in newborn:
        bank.load(child.slot, adapter)
        population = population.replaced(child)
    return Evolved(population, sorted((child for child, _ in newborn), key=lambda child: child.slot), parents, spared)


def _child(
    culled_member: Member,
    members: tuple[Member, ...],
    culled: tuple[Member, ...],
    bank: LoraBank,
    config: Config,
    step: int,
    valid_rates: Mapping[str, float],
) -> tuple[Member, Adapter]:
    settings = config.evolution
    name = ("evolve", step, culled_member.id)
    rng = stream(config.seed, *name, "choice")
    pool = {operator.name: operator for operator in map(get_operator, settings.operators)}
    available = len(members) - len(culled)
    operator = pool[choose_operator({name: operator.arity for name, operator in pool.items()}, available, rng)]
    parents = choose_parents(members, culled, operator.arity, settings.lcb_k, rng, valid_rates)
    if operator.mixes_factors and basis_cosine(*(bank.adapter(parent.slot) for parent in parents)) < settings.min_basis_cosine:
        others = {name: operator.arity for name, operator in pool.items() if not operator.mixes_factors}
        operator = pool[choose_operator(others, available, rng)]
        parents = parents[: operator.arity]
    generation = culled_member.lineage.generation + 1
    plan = Lineage(culled_member.id, generation, step, operator.name, stream=name, refactor=settings.refactor, seed=config.seed)
    names = [parent.lineage.name for parent in parents]
    adapter, lineage = breed([bank.adapter(parent.slot) for parent in parents], plan, names, allow_copy=True, operator=operator)
    rating = child_rating([parent.rating for parent in parents], settings.child_sigma)
    protected_until = step + settings.every if settings.protect_newborns else step
    return replace(culled_member, rating=rating, lineage=lineage, protected_until=protected_until), adapter
