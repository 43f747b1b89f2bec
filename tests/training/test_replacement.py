"""What evolution changes in a run: the slots of the children and the counts that judged their predecessors, and nothing else."""

import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from small_run import SMALL

from populora.core.types import CODE_TYPES, Generation, Proposal, Rating
from populora.training.evolution import evolve_if_due
from populora.training.loop import build_run
from populora.training.population import Population
from populora.training.seed_buffer import fill_buffer
from populora.training.step import store_problems

REJECTED = [
    Proposal(teacher, task, 0, Generation("text", (1,), (2,), (-0.1,), 0.0, True), True, None, "error:syntax")
    for teacher in ("T0", "T1")
    for task in CODE_TYPES
]
OUTCOME: Any = SimpleNamespace(void=frozenset(), teacher_rewards=[-1.0] * len(REJECTED))
MOMENTS = ("first_moment", "second_moment", "steps")


def test_a_replacement_changes_the_childrens_slots_and_the_counts_alone():
    published = []
    with build_run(SMALL) as run:
        fill_buffer(run)
        generator = torch.Generator().manual_seed(0)
        for name in ("master", "first_moment", "second_moment"):
            getattr(run.bank, name).add_(torch.rand(run.bank.master.shape, generator=generator))
        run.bank.steps += 7
        run.archives["python"].add([(3, 2, 4, 1)])
        rated = (replace(member, rating=Rating(20.0 + index, 1.0 + index)) for index, member in enumerate(run.population.members))
        run.population = Population(tuple(rated))
        store_problems(run, REJECTED, OUTCOME)
        members, bank, buffer = run.population.members, run.bank.state(), run.buffer.state()
        archive = {name: np.array(value) for name, value in run.archives["python"].state().items()}
        run.sampler.sync_weights = lambda bank, slots: published.extend(slots)
        evolve_if_due(run, SMALL.evolution.every)
    children = [member for member in run.population.members if member.lineage.generation == 1]
    assert [child.id for child in children] == ["T0", "S0"] and published == [0, 2]
    for child in children:
        assert not any(bool(getattr(run.bank, name)[child.slot].count_nonzero()) for name in MOMENTS)
        (parent,) = child.lineage.parent_names  # of two members one is left, so the child is a mutant
        assert child.rating == Rating(run.population.get(parent.split("#")[0]).rating.mu, max(25 / 12, parent_sigma(members, parent)))
        assert child.protected_until == 2 * SMALL.evolution.every
    stayed = [member.slot for member in run.population.members if member not in children]
    assert [members[slot] for slot in stayed] == [run.population.members[slot] for slot in stayed]
    assert all(torch.equal(bank[name][stayed], run.bank.state()[name][stayed]) for name in ("master", *MOMENTS))
    assert run.buffer.state() == buffer and run.valid_counts == run.reward_sums == {}
    assert archive and all(np.array_equal(value, archive[name]) for name, value in run.archives["python"].state().items())


def parent_sigma(members, name: str) -> float:
    return next(member.rating.sigma for member in members if member.lineage.name == name)


def test_counts_go_on_until_the_next_evolution():
    with build_run(SMALL) as run:
        fill_buffer(run)
        store_problems(run, REJECTED, OUTCOME)
        counts = copy.deepcopy(run.valid_counts)
        evolve_if_due(run, SMALL.evolution.every - 1)
        assert run.valid_counts == counts != {} and not any(member.lineage.generation for member in run.population.members)
