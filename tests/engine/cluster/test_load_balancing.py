"""Every piece is assigned once, nothing moves without need, help never slows a step, and loads are close to the ideal."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora.engine.cluster.load_balancing import RAISE, TOLERANCE, assign, owners_of


@st.composite
def steps(draw):
    """Arguments of `assign` with random owners, some slots and ranks without work, and one to three nodes."""
    ranks = draw(st.integers(1, 9))
    work = draw(st.dictionaries(st.integers(0, 30), st.lists(st.integers(1, 9000), max_size=30), max_size=12))
    owners = {slot: draw(st.integers(0, ranks - 1)) for slot in work}
    near = draw(st.sampled_from([0.0, 1.0, 500.0, 20000.0]))
    return work, owners, ranks, near, [rank // 3 for rank in range(ranks)], near * draw(st.sampled_from([1, 2, 5]))


def assign_near(work, ranks, help_cost):
    """Assign to ranks of one node."""
    return assign(work, owners_of(len(work), ranks), ranks, help_cost, [0] * ranks, help_cost)


def loads_of(work, owners, ranks):
    return [sum(sum(sizes) for slot, sizes in work.items() if owners[slot] == rank) for rank in range(ranks)]


@given(steps())
def test_every_piece_is_computed_once_and_loads_are_as_reported(step):
    work, owners, ranks, near, nodes, far = step
    plan = assign(*step)
    pieces = [(slot, piece) for slot, kept in plan.kept.items() for piece in kept]
    pieces += [(slot, piece) for (slot, _), moved in plan.moved.items() for piece in moved]
    assert sorted(pieces) == [(slot, piece) for slot in sorted(work) for piece in range(len(work[slot]))]
    assert list(plan.moved) == sorted(plan.moved) and all(owners[slot] != helper for slot, helper in plan.moved)
    loads = [0.0] * ranks
    for slot, kept in plan.kept.items():
        loads[owners[slot]] += sum(work[slot][piece] for piece in kept)
    for (slot, helper), moved in plan.moved.items():
        cost = near if nodes[owners[slot]] == nodes[helper] else far
        loads[helper] += cost + sum(work[slot][piece] for piece in moved)
    assert plan.loads == pytest.approx(loads)


@given(steps())
def test_the_makespan_is_bounded(step):
    """Never above that without help, never below the ideal, and always below the mean plus one piece and the costs: when nothing fits any
    more, all ranks are nearer to the ceiling than one piece and one cost. A pair ends with its donor relieved, its helper full or its slot
    empty, so there are few."""
    work, _, ranks, _, _, far = step
    plan = assign(*step)
    makespan = max(plan.loads)
    assert makespan <= max(loads_of(*step[:3])) and (makespan >= plan.ideal or not any(work.values()))
    largest = max((tokens for sizes in work.values() for tokens in sizes), default=0)
    pairs = 2 + len(work) / ranks
    assert makespan <= plan.ideal + max(TOLERANCE * plan.ideal, RAISE * (largest + (1 + pairs) * far)) + 1e-6


@given(steps(), st.randoms())
def test_equal_arguments_give_equal_assignments_in_any_order(step, order: random.Random):
    work, owners, *others = step
    slots = list(work)
    order.shuffle(slots)
    assert assign(*step) == assign({slot: work[slot] for slot in slots}, dict(reversed(owners.items())), *others)


@given(st.integers(1, 8), st.integers(1, 3), st.lists(st.integers(990, 1010), min_size=10, max_size=10))
def test_even_loads_move_nothing(ranks, slots, sizes):
    work = {slot: sizes if slot % 2 else [1000] * 10 for slot in range(ranks * slots)}
    plan = assign_near(work, ranks, 0.0)
    assert plan.moved == {} and plan.loads == tuple(loads_of(work, owners_of(len(work), ranks), ranks))


@pytest.mark.parametrize(
    ("work", "help_cost", "kept", "moved", "loads"),
    [
        pytest.param([[100] * 12, [100] * 8, [100] * 10], 5.0, 10, {(0, 1): [0, 1]}, (1000.0, 1005.0, 1000.0), id="excess goes to one"),
        pytest.param([[1, 50, 1, 50, 1, 1], [4]], 1.0, 5, {(0, 1): [1]}, (54.0, 55.0), id="the largest pieces move"),
        pytest.param([[100] * 3, [100]], 100.0, 3, {}, (300.0, 100.0), id="help that costs more than it saves is not taken"),
    ],
)
def test_assignments_by_hand(work, help_cost, kept, moved, loads):
    plan = assign_near(dict(enumerate(work)), len(work), help_cost)
    assert (len(plan.kept[0]), plan.moved, plan.loads) == (kept, moved, loads)


@pytest.mark.parametrize(
    ("pieces", "nodes", "helpers"),
    [
        ((72, 48, 50, 70), [0, 0, 0, 0], [1, 2]),  # the most loaded to the one with most room
        ((72, 48, 50, 70), [0, 1, 0, 1], [2, 1]),
        ((80, 40, 80, 40), [0, 1, 0, 1], [1, 3]),
    ],
)
def test_helpers_on_the_owners_node_come_first_and_others_when_it_is_full(pieces, nodes, helpers):
    work = {slot: [10] * count for slot, count in enumerate(pieces)}
    assert [helper for _, helper in assign(work, owners_of(4, 4), 4, 1.0, nodes, 5.0).moved] == helpers


def test_owners_are_even_and_mixed():
    assert list(owners_of(8, 4).values()) == [0, 1, 2, 3, 0, 1, 2, 3]  # four teachers, then four students
