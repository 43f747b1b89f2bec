"""Phase 5 of a step: every k steps the weakest of each role are replaced by children of the strongest (paper, 3.3–3.4)."""

from __future__ import annotations

from dataclasses import replace

from populora.adapters.adapter import Adapter
from populora.adapters.operators import get_operator
from populora.adapters.operators.lineage import bred
from populora.core.config import Config
from populora.core.errors import ConfigError
from populora.core.rng import stream
from populora.core.types import Lineage, Member, Role
from populora.engine.model.bank import LoraBank
from populora.training.culling import child_rating, choose_operator, choose_parents, cull_count, to_cull
from populora.training.population import Population


def evolution_due(config: Config, step: int) -> bool:
    """After the update of steps k, 2k, …, but not after the last: a child must not be judged untrained (reading 25)."""
    every = config.evolution.every
    return every > 0 and step % every == 0 and step < config.steps


def check_operators(config: Config) -> None:
    """Raise `ConfigError` before a run for an operator that does not exist or could never be used."""
    if config.population.single_agent or not config.evolution.every:
        return
    operators = {name: get_operator(name) for name in config.evolution.operators}
    fewest = min(operator.arity for operator in operators.values())
    rank = min(config.lora.ranks or (config.lora.rank,))
    for role, size in (("teachers", config.population.teachers), ("students", config.population.students)):
        culled = cull_count(size, config.evolution.cull_fraction)
        if culled and fewest > size - culled:
            raise ConfigError(
                f"evolution.operators {', '.join(operators)} all need {fewest} parents, but of {size} {role} "
                f"{size - culled} are left when the weakest go: add a mutation (m1 to m4) or members, or cull fewer"
            )
        for name, operator in operators.items():
            if culled and operator.arity <= size - culled and operator.min_rank > rank:
                raise ConfigError(f"operator '{name}' needs lora.rank {operator.min_rank} or more, got {rank}: leave it out of the pool")


def evolve(population: Population, bank: LoraBank, config: Config, step: int, valid_rates: dict[str, float]) -> Population:
    """Replace the bottom ``cull_fraction`` of teachers and of students; the bank's slots change in place.

    ``valid_rates`` are the teachers' shares of valid proposals since the last evolution: a broken teacher goes first
    (reading 17). Parents are read before any slot is written, so a child never descends from a child of the same step.
    """
    children = []
    for role in (Role.TEACHER, Role.STUDENT):
        members = population.role(role)
        culled = to_cull(members, config.evolution.cull_fraction, config.evolution.lcb_k, step, valid_rates)
        children += [_child(place, members, culled, bank, config, step, valid_rates) for place in culled]
    for member, adapter in children:
        bank.load(member.slot, adapter)
        population = population.replaced(member)
    return population


def _child(
    place: Member,
    members: tuple[Member, ...],
    culled: tuple[Member, ...],
    bank: LoraBank,
    config: Config,
    step: int,
    valid_rates: dict[str, float],
) -> tuple[Member, Adapter]:
    settings = config.evolution
    name = ("evolve", step, place.id)
    rng = stream(config.seed, *name, "choice")
    arities = {get_operator(operator).name: get_operator(operator).arity for operator in settings.operators}
    operator = choose_operator(arities, len(members) - len(culled), rng)
    parents = choose_parents(members, culled, arities[operator], settings.lcb_k, rng, valid_rates)
    plan = Lineage(place.id, place.lineage.generation + 1, step, operator, stream=name, refactor=settings.refactor, seed=config.seed)
    child, lineage = bred(plan, [(parent.lineage.name, bank.adapter(parent.slot)) for parent in parents], allow_copy=True)
    rating = child_rating([parent.rating for parent in parents], settings.child_sigma)
    return replace(place, rating=rating, lineage=lineage, protected_until=step + settings.every), child
