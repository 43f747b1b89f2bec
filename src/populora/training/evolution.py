"""Phase 5 of a step: every k steps the weakest of each role are replaced by children of the strongest (paper, 3.3–3.4)."""

from collections.abc import Mapping
from dataclasses import replace

from populora.adapters.adapter import Adapter
from populora.adapters.operators import get_operator
from populora.adapters.operators.breeding import breed
from populora.adapters.peft_format import peft_files
from populora.core.config import Config
from populora.core.errors import ConfigError
from populora.core.rng import stream
from populora.core.types import Lineage, Member, Role
from populora.engine.model.bank import LoraBank
from populora.engine.model.loading import base_name
from populora.training.culling import child_rating, choose_operator, choose_parents, cull_count, to_cull
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


def evolve_if_due(run: Run, step: int) -> tuple[tuple[Lineage, ...], dict[str, dict[str, bytes]]]:
    """Breed and replace when the step is due. Returns the children's lineages, and the files of their parents' PEFT folders by name."""
    if run.config.population.single_agent or not evolution_due(run.config, step):
        return (), {}
    valid_rates = {author: valid / total for author, (valid, total) in run.valid_counts.items() if total}
    run.population, children, parents = evolve(run.population, run.bank, run.config, step, valid_rates)
    run.valid_counts = {}
    run.sync_weights(child.slot for child in children)
    base, targets = base_name(run.config.base), run.config.lora.targets
    return tuple(child.lineage for child in children), {name: peft_files(parent, base, targets) for name, parent in parents.items()}


def evolve(
    population: Population, bank: LoraBank, config: Config, step: int, valid_rates: Mapping[str, float]
) -> tuple[Population, list[Member], dict[str, Adapter]]:
    """Replace the bottom ``cull_fraction`` of teachers and of students; the bank's slots change in place.

    ``valid_rates`` are the teachers' shares of valid proposals since the last evolution: a broken teacher goes first
    (reading 17). Parents are read before any slot is written, so a child never descends from a child of the same step.
    Returns the new population, its children in the order of slots, and copies of their parents by name. There are none where
    ``evolution.keep_parents`` is off; without them no child can be bred again.
    """
    newborn: list[tuple[Member, Adapter]] = []
    for role in (Role.TEACHER, Role.STUDENT):
        members = population.role(role)
        culled = to_cull(members, config.evolution.cull_fraction, config.evolution.lcb_k, step, valid_rates)
        newborn += [_child(member, members, culled, bank, config, step, valid_rates) for member in culled]
    names = {name for child, _ in newborn for name in child.lineage.parent_names} if config.evolution.keep_parents else set[str]()
    parents = {member.lineage.name: bank.adapter(member.slot) for member in population.members if member.lineage.name in names}
    for child, adapter in newborn:
        bank.load(child.slot, adapter)
        population = population.replaced(child)
    return population, sorted((child for child, _ in newborn), key=lambda child: child.slot), parents


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
    operator = pool[choose_operator({name: operator.arity for name, operator in pool.items()}, len(members) - len(culled), rng)]
    parents = choose_parents(members, culled, operator.arity, settings.lcb_k, rng, valid_rates)
    generation = culled_member.lineage.generation + 1
    plan = Lineage(culled_member.id, generation, step, operator.name, stream=name, refactor=settings.refactor, seed=config.seed)
    names = [parent.lineage.name for parent in parents]
    adapter, lineage = breed([bank.adapter(parent.slot) for parent in parents], plan, names, allow_copy=True, operator=operator)
    rating = child_rating([parent.rating for parent in parents], settings.child_sigma)
    return replace(culled_member, rating=rating, lineage=lineage, protected_until=step + settings.every), adapter
