"""Evolution in a bank: who is replaced, what the child is, what stays untouched, and when."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from populora.adapters.operators import OPERATORS, get_operator
from populora.core.config import Config, EvolutionConfig, LoraConfig, PopulationConfig
from populora.core.errors import ConfigError
from populora.core.rng import stream
from populora.core.types import Rating, Role
from populora.engine.model.bank import LoraBank
from populora.training.culling import Interval
from populora.training.evolution import check_operators, evolution_due, evolve, evolve_if_due
from populora.training.population import Population, initial_population

NOTHING = Interval({}, {})

CONFIG = Config(
    steps=40, population=PopulationConfig(4, 4), lora=LoraConfig(rank=4, alpha=8.0), evolution=EvolutionConfig(every=10, cull_fraction=0.25)
)


def rated(population, ratings):
    return Population(tuple(replace(member, rating=ratings.get(member.id, member.rating)) for member in population.members))


def evolved(*arguments):
    return evolve(*arguments).population


@pytest.fixture
def world():
    bank = LoraBank([{"model.layers.0.self_attn.q_proj": (8, 8), "model.layers.0.self_attn.v_proj": (8, 6)}], 8, 4, 8.0)
    bank.initialise(0)
    generator = torch.Generator().manual_seed(0)
    bank.master += 0.1 * torch.randn(bank.master.shape, generator=generator)
    bank.steps += 10
    population = initial_population(CONFIG)
    ratings = {member.id: Rating(20.0 + index, 1.0) for index, member in enumerate(population.members)}
    return rated(population, ratings), bank


def test_due_every_k_steps_but_not_after_the_last():
    assert [step for step in range(1, 41) if evolution_due(CONFIG, step)] == [10, 20, 30]
    assert not evolution_due(replace(CONFIG, evolution=EvolutionConfig(every=0)), 10)


def test_the_weakest_of_each_role_is_replaced_by_a_child_of_the_strong(world):
    population, bank = world
    before = bank.master.clone()
    after, children, parents, _ = evolve(population, bank, CONFIG, 10, NOTHING)
    assert [member.id for member in children] == ["T0", "S0"] == [m.id for m in after.members if m.lineage.generation == 1]
    assert set(parents) == {name for child in children for name in child.lineage.parent_names}
    without = replace(CONFIG, evolution=replace(CONFIG.evolution, keep_parents=False))
    assert evolve(population, bank, without, 10, NOTHING).parents == {}
    bank.master.copy_(before)
    evolve(population, bank, CONFIG, 10, NOTHING)
    for child in (after.get("T0"), after.get("S0")):
        parents = [parent.split("#")[0] for parent in child.lineage.parents]
        assert set(parents) <= {f"{child.id[0]}2", f"{child.id[0]}3"}
        assert child.lineage.born == 10 and child.protected_until == 20 and child.lineage.stream == ("evolve", 10, child.id)
        assert not torch.equal(bank.master[child.slot], before[child.slot]) and bank.steps[child.slot] == 0
    untouched = [member.slot for member in after.members if member.lineage.generation == 0]
    assert torch.equal(bank.master[untouched], before[untouched]) and bool((bank.steps[untouched] == 10).all())


def test_a_child_is_rated_like_its_parents_with_more_doubt(world):
    population, bank = world
    child = evolved(population, bank, CONFIG, 10, NOTHING).get("T0")
    mus = [population.get(parent.split("#")[0]).rating.mu for parent in child.lineage.parents]
    assert child.rating.mu == pytest.approx(sum(mus) / len(mus)) and child.rating.sigma == pytest.approx(25 / 12)


def test_a_teacher_that_hardly_makes_a_valid_problem_goes_first_and_breeds_last(world):
    population, bank = world
    for _ in range(4):
        child = evolved(population, bank, CONFIG, 10, Interval({"T1": 0.01, "T3": 0.05}, {})).get("T1")
        assert {parent.split("#")[0] for parent in child.lineage.parents} <= {"T0", "T2"}


def test_a_teacher_that_lost_one_type_goes_first(world):
    population, bank = world
    config = replace(CONFIG, evolution=replace(CONFIG.evolution, keep_parents=False))
    run = SimpleNamespace(population=population, bank=bank, config=config, sync_weights=list, reward_sums={})
    types = {"code_i": [90, 100], "code_o": [100, 100]}
    run.valid_counts = {"T0": {**types, "code_f": [50, 100]}, "T3": {**types, "code_f": [9, 100]}}
    evolution = evolve_if_due(run, 10)
    assert [child.member for child in evolution.children] == ["T3", "S0"] and evolution.broken == ("T3",) and run.valid_counts == {}
    assert not {"T3#0", "T0#0"} & set(evolution.children[0].parent_names)


def test_a_teacher_that_earned_least_goes_first_only_if_the_settings_say_so(world):
    population, bank = world
    for fitness, gone in (("rating", "T0"), ("reward", "T2")):
        config = replace(CONFIG, evolution=replace(CONFIG.evolution, teacher_fitness=fitness, keep_parents=False))
        run = SimpleNamespace(population=population, bank=bank, config=config, sync_weights=list, valid_counts={})
        run.reward_sums = {"T0": [9.0, 10], "T1": [2.0, 10], "T2": [-1.0, 10], "T3": [4.0, 10]}
        evolution = evolve_if_due(run, 10)
        assert [child.member for child in evolution.children] == [gone, "S0"] and run.reward_sums == {}
        assert {name[0] for name in evolution.children[1].parent_names} == {"S"}
    assert set(evolution.children[0].parent_names) <= {"T0#0", "T3#0"}


def test_newborns_are_safe_for_one_interval(world):
    population, bank = world
    weakened = rated(evolved(population, bank, CONFIG, 10, NOTHING), {"T0": Rating(0.0, 1.0)})
    twice = evolve(weakened, bank, CONFIG, 20, NOTHING)
    assert twice.population.role(Role.TEACHER) == weakened.role(Role.TEACHER), "nobody stronger goes instead"
    assert [member.id for member in twice.spared] == ["T0", "S0"]
    third = evolved(weakened, bank, CONFIG, 30, NOTHING).get("T0").lineage
    assert (third.born, third.name) == (30, "T0#2")


def test_newborns_may_be_replaced_at_once_as_in_the_paper(world):
    population, bank = world
    config = replace(CONFIG, evolution=replace(CONFIG.evolution, protect_newborns=False))
    weakened = rated(evolved(population, bank, config, 10, NOTHING), {"T0": Rating(0.0, 1.0)})
    twice = evolve(weakened, bank, config, 20, NOTHING)
    assert twice.population.get("T0").lineage.born == 20 and not twice.spared


def operators_of_children(population, bank, min_basis_cosine):
    settings = replace(CONFIG, evolution=EvolutionConfig(operators=("x1", "x4", "x2"), min_basis_cosine=min_basis_cosine))
    saved, operators = bank.state(), set()
    for step in range(10, 210, 10):
        operators |= {child.lineage.operator for child in evolve(population, bank, settings, step, NOTHING).children}
        bank.restore(saved)
    return operators


def turn_around(population, bank):
    for name in ("T3", "S3"):  # the same delta in the opposite basis
        slot = population.get(name).slot
        adapter = bank.adapter(slot)
        bank.load(slot, replace(adapter, modules={module: (-a, -b) for module, (a, b) in adapter.modules.items()}))


def test_factors_of_parents_without_a_common_basis_are_mixed_only_if_the_settings_say_so(world):
    population, bank = world
    assert operators_of_children(population, bank, 0.5) == {"x1", "x4", "x2"}, "parents that only trained share the basis of their start"
    turn_around(population, bank)
    assert operators_of_children(population, bank, 0.5) == {"x2"}
    assert operators_of_children(population, bank, -1.0) == {"x1", "x4", "x2"}


def test_a_mutation_in_the_place_of_a_crossover_has_one_parent(world):
    population, bank = world
    turn_around(population, bank)
    settings = replace(CONFIG, evolution=EvolutionConfig(operators=("x1", "m1")))
    children = [child.lineage for step in range(10, 60, 10) for child in evolve(population, bank, settings, step, NOTHING).children]
    assert {(child.operator, len(child.parents)) for child in children} == {("m1", 1)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"population": PopulationConfig(2, 2), "evolution": EvolutionConfig(operators=("x1", "x2"))}, "need 2 parents"),
        ({"evolution": EvolutionConfig(operators=("m99",))}, "m99"),
        ({"evolution": EvolutionConfig(operators=("x1",), cull_fraction=0.75)}, "cull fewer"),
        ({"evolution": EvolutionConfig(operators=("x1", "x4"))}, "all mix factors"),
        ({"evolution": EvolutionConfig(operators=("m1", "m2", "svd_structured"))}, "got m1 more than once"),
        ({"lora": LoraConfig(1, 2.0)}, r"'x3' needs lora\.rank 2 or more, got 1"),
        (
            {"lora": LoraConfig(2, 4.0), "evolution": EvolutionConfig(operators=("rank_perturbation",))},
            r"'rank_perturbation' needs lora\.rank 3 or more, got 2",
        ),
    ],
)
def test_operators_that_could_never_be_used_are_refused_before_the_run(changes, message):
    check_operators(CONFIG)
    check_operators(replace(CONFIG, population=PopulationConfig(2, 2), lora=LoraConfig(1, 2.0)))  # of two, nothing can be crossed
    check_operators(replace(CONFIG, population=PopulationConfig(1, 4), lora=LoraConfig(8, 16.0, ranks=(1, 8, 8, 8, 8))))  # a lone teacher
    with pytest.raises(ConfigError, match=message):
        check_operators(replace(CONFIG, **changes))


@pytest.mark.parametrize("operator", [*OPERATORS, "rank_perturbation", "ties"])
def test_every_operator_may_be_put_into_the_pool(world, operator):
    population, bank = world
    settings = replace(CONFIG, evolution=EvolutionConfig(operators=(operator,), min_basis_cosine=-1.0))
    check_operators(settings)
    after = evolved(population, bank, settings, 10, NOTHING)
    recorded = [member.lineage.operator for member in after.members if member.lineage.born == 10]
    assert recorded == [get_operator(operator).name] * 2  # whichever of its names the pool has


def test_a_child_that_equals_its_parent_is_born_and_recorded(world):
    population, bank = world
    settings = replace(CONFIG, evolution=EvolutionConfig(operators=("x2",)))
    copies = 0
    for step in range(10, 100, 10):  # two modules: every other child of X2 is one parent whole
        child = evolved(population, bank, settings, step, NOTHING).get("T0")
        parents = [bank.master[population.get(parent.split("#")[0]).slot] for parent in child.lineage.parents]
        if any(torch.equal(bank.master[child.slot], parent) for parent in parents):
            copies += 1
            assert max(child.lineage.cosines) == pytest.approx(1.0) and bank.steps[child.slot] == 0
    assert copies


def test_other_draws_choose_the_operator_than_breed_the_child(world):
    population, bank = world
    pool = ("m1", "m2", "m3", "m4")
    settings = replace(CONFIG, evolution=EvolutionConfig(operators=pool))
    children = [child.lineage for step in range(10, 60, 10) for child in evolve(population, bank, settings, step, NOTHING).children]
    as_bred = [pool[int(stream(child.seed, *child.stream).integers(len(pool)))] for child in children]
    assert len(children) == 10 and [child.operator for child in children] != as_bred


def test_the_same_seed_breeds_the_same_children(world):
    population, bank = world
    saved = bank.state()
    first = evolved(population, bank, CONFIG, 10, NOTHING)
    bred = bank.master.clone()
    bank.restore(saved)
    assert evolved(population, bank, CONFIG, 10, NOTHING) == first and torch.equal(bank.master, bred)
