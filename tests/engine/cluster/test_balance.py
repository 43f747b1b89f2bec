"""Who computes what: every piece once, nothing moves without need, never worse than without help, and close to the ideal."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora.core.errors import PopuloraError
from populora.engine.cluster.balance import RAISE, Help, Share, assign, owners_of


@st.composite
def steps(draw):
    """Arguments of `assign` with random owners, some slots and ranks without work, and one to four nodes."""
    ranks = draw(st.integers(1, 9))
    work = draw(st.dictionaries(st.integers(0, 30), st.lists(st.integers(1, 9000), max_size=30), max_size=12))
    owners = {slot: draw(st.integers(0, ranks - 1)) for slot in work}
    near = draw(st.sampled_from([0.0, 1.0, 500.0, 20000.0]))
    return work, owners, ranks, near, [rank // 3 for rank in range(ranks)], near * draw(st.sampled_from([1, 2, 5]))


def loads_of(work, owners, ranks):
    return [sum(sum(sizes) for slot, sizes in work.items() if owners[slot] == rank) for rank in range(ranks)]


@given(steps())
def test_every_piece_is_computed_once_and_loads_and_helpers_are_as_told(step):
    work, owners, _, near, nodes, far = step
    found = assign(*step)
    computed = [(share.slot, piece) for shares in found.shares for share in shares for piece in share.pieces]
    assert sorted(computed) == [(slot, piece) for slot in sorted(work) for piece in range(len(work[slot]))]
    helps = [Help(share.slot, rank) for rank, shares in enumerate(found.shares) for share in shares if owners[share.slot] != rank]
    assert sorted(helps, key=lambda pair: (pair.slot, pair.helper)) == list(found.helps)
    for rank, shares in enumerate(found.shares):
        tokens = sum(work[share.slot][piece] for share in shares for piece in share.pieces)
        foreign = [owners[share.slot] for share in shares if owners[share.slot] != rank]
        costs = sum(near if nodes[owner] == nodes[rank] else far for owner in foreign)
        assert found.loads[rank] == pytest.approx(tokens + costs)
        assert [owners[share.slot] == rank for share in shares] == [False] * len(foreign) + [True] * (len(shares) - len(foreign))


@given(steps())
def test_no_rank_waits_longer_than_without_help_and_no_assignment_beats_the_ideal(step):
    found = assign(*step)
    assert found.makespan <= max(loads_of(*step[:3]))
    assert found.makespan >= found.ideal or not any(step[0].values())


@given(steps())
def test_the_makespan_is_bounded(step):
    """A ceiling of mean, one piece and the costs is always kept: when nothing fits any more, all ranks are nearer to it than one piece and
    one cost. A pair ends with its donor relieved, its helper full or its slot empty, so there are few."""
    work, _, ranks, _, _, far = step
    found = assign(*step)
    largest = max((tokens for sizes in work.values() for tokens in sizes), default=0)
    pairs = 2 + len(work) / ranks
    assert found.makespan <= found.ideal + max(0.02 * found.ideal, RAISE * (largest + (1 + pairs) * far)) + 1e-6


@given(steps(), st.randoms())
def test_equal_arguments_give_equal_assignments_in_any_order(step, order: random.Random):
    work, owners, *rest = step
    slots = list(work)
    order.shuffle(slots)
    assert assign(work, owners, *rest) == assign({slot: work[slot] for slot in slots}, dict(reversed(owners.items())), *rest)


@given(st.integers(1, 8), st.integers(1, 3), st.lists(st.integers(990, 1010), min_size=10, max_size=10))
def test_even_loads_move_nothing(ranks, each, sizes):
    work = {slot: sizes if slot % 2 else [1000] * 10 for slot in range(ranks * each)}
    found = assign(work, owners_of(len(work), ranks), ranks, help_cost=0.0)
    assert found.helps == () and found.loads == tuple(loads_of(work, owners_of(len(work), ranks), ranks))


def test_what_is_too_much_goes_to_one_helper_and_stands_first_there():
    work = {0: [100] * 12, 1: [100] * 8, 2: [100] * 10}
    found = assign(work, {0: 0, 1: 1, 2: 2}, ranks=3, help_cost=5.0)
    assert found.helps == (Help(0, 1),)
    assert found.shares[1] == (Share(0, (0, 1)), Share(1, tuple(range(8))))
    assert found.shares[0] == (Share(0, tuple(range(2, 12))),) and found.loads == (1000.0, 1005.0, 1000.0)


def test_a_rank_that_owns_nothing_helps():
    found = assign({0: [10] * 100}, owners_of(1, 4), ranks=4, help_cost=0.0)
    assert found.makespan <= 1.05 * found.ideal and [help.helper for help in found.helps] == [1, 2, 3]


def test_the_largest_pieces_move():
    found = assign({0: [1, 50, 1, 50, 1, 1], 1: [4]}, owners_of(2, 2), ranks=2, help_cost=1.0)
    assert found.shares[1][0] == Share(0, (1,)) and found.loads == (54.0, 55.0)


def test_helpers_on_the_owners_node_come_first_and_others_when_it_is_full():
    def helpers(*pieces, nodes):
        work = {slot: [10] * count for slot, count in enumerate(pieces)}
        return [help.helper for help in assign(work, owners_of(4, 4), 4, help_cost=1.0, nodes=nodes, far_cost=5.0).helps]

    assert helpers(72, 48, 50, 70, nodes=[0, 0, 0, 0]) == [1, 2]  # the most loaded to the one with most room
    assert helpers(72, 48, 50, 70, nodes=[0, 1, 0, 1]) == [2, 1]
    assert helpers(80, 40, 80, 40, nodes=[0, 1, 0, 1]) == [1, 3]


def test_help_that_costs_more_than_it_saves_is_not_taken():
    found = assign({0: [100] * 3, 1: [100]}, owners_of(2, 2), ranks=2, help_cost=100.0)
    assert found.helps == () and found.makespan == 300.0


def test_owners_are_even_and_mixed():
    owners = owners_of(8, 4)  # four teachers, then four students
    assert [owners[slot] for slot in range(8)] == [0, 1, 2, 3, 0, 1, 2, 3]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"owners": {0: 0}}, "slot 1: expected an owner among 2 ranks, got None"),
        ({"owners": {0: 0, 1: 2}}, "slot 1: expected an owner among 2 ranks, got 2"),
        ({"work": {0: [5, 0], 1: [3]}}, r"slot 0: expected pieces of at least one token, got \[5, 0\]"),
        ({"ranks": 0}, "at least one rank"),
        ({"nodes": [0]}, "a node for each, got 2 ranks"),
        ({"help_cost": -1.0}, "0 <= help_cost"),
        ({"help_cost": math.nan}, "0 <= help_cost"),
        ({"far_cost": 1.0}, "got 2.0, 1.0"),
        ({"tolerance": 0.0}, "a tolerance above 0"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change, message):
    good = {"work": {0: [5], 1: [3]}, "owners": {0: 0, 1: 1}, "ranks": 2, "help_cost": 2.0}
    assign(**good)
    with pytest.raises(PopuloraError, match=message):
        assign(**(good | change))


def test_owners_of_nothing_are_refused():
    with pytest.raises(PopuloraError, match="at least one slot and one rank, got 3 and 0"):
        owners_of(3, 0)
