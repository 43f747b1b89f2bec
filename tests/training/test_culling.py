"""Replacement: who goes, who may be a parent, which operator, and what a child is believed to be."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora.core.config import EvolutionConfig
from populora.core.errors import ConfigError, PopuloraError
from populora.core.types import Lineage, Member, Rating, Role
from populora.training.culling import Culled, Interval, child_rating, choose_operator, choose_parents, select_culled
from populora.training.ratings import lower_bound

NOTHING = Interval({}, {})
ARITIES = {"m1": 1, "m2": 1, "x1": 2, "x2": 2}


def teachers(*mus, sigma=1.0):
    return [Member(f"T{i}", Role.TEACHER, i, Rating(mu, sigma), Lineage(f"T{i}", 0, 0)) for i, mu in enumerate(mus)]


def ids(members):
    return [member.id for member in members]


def weakest(members, fraction, lcb_k, step, valid_rates=None) -> Culled:
    settings = EvolutionConfig(cull_fraction=fraction, lcb_k=lcb_k)
    return select_culled(members, settings, step, Interval(valid_rates or {}, {}), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("size", "fraction", "count"),
    [(1, 0.25, 0), (2, 0.25, 1), (3, 0.25, 1), (4, 0.25, 1), (8, 0.25, 2), (4, 0.5, 2), (50, 0.58, 29), (4, 0.0, 0), (2, 0.9, 1)],
)
def test_how_many_go(size, fraction, count):
    assert len(weakest(teachers(*range(size)), fraction, 1.0, step=10).culled) == count


def test_the_lowest_bound_goes_not_the_lowest_mean():
    members = teachers(20.0, 22.0, 30.0, 31.0)
    members[1] = replace(members[1], rating=Rating(22.0, 8.0))
    assert ids(weakest(members, 0.25, 1.0, 10).culled) == ["T1"]
    assert ids(weakest(members, 0.25, 0.0, 10).culled) == ["T0"]


def test_a_newborn_stays_until_its_interval_ends_and_nobody_stronger_goes_instead():
    members = teachers(20.0, 25.0, 30.0, 31.0)
    members[0] = replace(members[0], protected_until=20)
    assert weakest(members, 0.25, 1.0, 20) == ((), (members[0],))
    assert ids(weakest(members, 0.5, 1.0, 20).culled) == ["T1"]
    assert ids(weakest(members, 0.25, 1.0, 21).culled) == ["T0"]


def test_a_broken_newborn_spares_no_broken_teacher():
    members, broken = teachers(20.0, 25.0, 30.0, 31.0), {"T2": 0.0, "T3": 0.05}
    members[2] = replace(members[2], protected_until=10)
    assert weakest(members, 0.25, 1.0, 10, broken) == ((members[3],), ())


def test_teacher_without_valid_proposals_goes_first():
    members = teachers(20.0, 25.0, 30.0, 31.0)
    assert ids(weakest(members, 0.25, 1.0, 10, {"T3": 0.05, "T0": 0.9}).culled) == ["T3"]
    assert ids(weakest(members, 0.25, 1.0, 10, {"T3": 0.1}).culled) == ["T0"]
    half = EvolutionConfig(broken_valid_rate=0.5)
    assert ids(select_culled(members, half, 10, Interval({"T3": 0.4, "T2": 0.6}, {}), np.random.default_rng(0)).culled) == ["T3"]


def test_random_culling_draws_anyone_as_often_and_spares_newborns_too():
    members, rng = teachers(20.0, 25.0, 30.0, 31.0), np.random.default_rng(0)
    members[3] = replace(members[3], protected_until=10)
    draws = [select_culled(members, EvolutionConfig(cull="random"), 10, Interval({"T1": 0.0}, {}), rng) for _ in range(2000)]
    counts = Counter(member.id for drawn in draws for member in (*drawn.culled, *drawn.spared))
    assert sum(counts.values()) == len(draws) and all(count == pytest.approx(500, abs=75) for count in counts.values())
    assert {member.id for drawn in draws for member in drawn.spared} == {"T3"}


def test_equal_bounds_are_decided_by_validity_then_slot():
    members = teachers(20.0, 20.0, 20.0)
    assert ids(weakest(members, 0.25, 1.0, 10).culled) == ["T0"]
    assert ids(weakest(members, 0.25, 1.0, 10, {"T0": 0.9, "T1": 0.5, "T2": 0.9}).culled) == ["T1"]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=10), st.floats(0, 0.99), st.integers(0, 99))
def test_culled_are_the_weakest_and_parents_survive_from_the_top_half(mus, fraction, seed):
    members = teachers(*mus)
    culled = weakest(members, fraction, 1.0, 10).culled
    assert len(culled) < len(members)
    left = [member for member in members if member not in culled]
    assert all(lower_bound(gone.rating, 1.0) <= min(lower_bound(m.rating, 1.0) for m in left) for gone in culled)
    if not culled:
        return
    rng = np.random.default_rng(seed)
    parents = choose_parents(members, culled, ARITIES[choose_operator(ARITIES, len(left), rng)], EvolutionConfig(), NOTHING, rng)
    assert len({parent.id for parent in parents}) == len(parents)
    assert not set(ids(parents)) & set(ids(culled))
    half = sorted(mus, reverse=True)[: (len(mus) + 1) // 2]
    assert all(parent.rating.mu >= min(half) for parent in parents)


def test_parents_are_uniform_over_the_top_half_in_both_orders():
    members, rng = teachers(1.0, 2.0, 3.0, 4.0), np.random.default_rng(0)
    pairs = Counter(tuple(ids(choose_parents(members, members[:1], 2, EvolutionConfig(), NOTHING, rng))) for _ in range(2000))
    assert set(pairs) == {("T2", "T3"), ("T3", "T2")}
    assert 900 < pairs["T2", "T3"] < 1100


def parents_drawn(members, culled):
    rng = np.random.default_rng(0)
    return {choose_parents(members, culled, 1, EvolutionConfig(), NOTHING, rng)[0].id for _ in range(100)}


def test_parents_have_the_highest_bounds_not_the_highest_means():
    members = teachers(30.0, 32.0, 28.0, 27.0)
    members[1] = replace(members[1], rating=Rating(32.0, 8.0))
    assert parents_drawn(members, members[3:]) == {"T0", "T2"}


def test_the_top_half_is_that_of_all_members_rounded_up():
    for size, gone in ((8, 4), (7, 3), (3, 1)):
        members = teachers(*range(size))
        assert parents_drawn(members, members[:gone]) == set(ids(members[size // 2 :]))


def test_a_broken_teacher_that_stays_is_a_parent_last():
    members, broken = teachers(1.0, 2.0, 3.0, 4.0), {"T0": 0.0, "T3": 0.05}
    assert ids(weakest(members, 0.25, 1.0, 10, broken).culled) == ["T0"]
    parents = {
        choose_parents(members, members[:1], 1, EvolutionConfig(), Interval(broken, {}), np.random.default_rng(seed))[0].id
        for seed in range(30)
    }
    assert parents == {"T1", "T2"}
    half = EvolutionConfig(broken_valid_rate=0.5)
    parents = {
        choose_parents(members, members[:1], 1, half, Interval({"T2": 0.4}, {}), np.random.default_rng(seed))[0].id for seed in range(30)
    }
    assert parents == {"T3", "T1"}
    alone = {"T0": 0.0, "T2": 0.0, "T3": 0.0}
    pairs = {
        tuple(sorted(ids(choose_parents(members, members[:1], 2, EvolutionConfig(), Interval(alone, {}), np.random.default_rng(seed)))))
        for seed in range(9)
    }
    assert pairs == {("T1", "T3")}, "where too few are sound, the strongest of the others helps out"


def test_teachers_may_be_ranked_by_what_they_earned_and_students_beside_them_by_rating():
    members, earned = teachers(31.0, 30.0, 25.0, 20.0), Interval({"T2": 0.05}, {"T0": -0.2, "T1": 0.3, "T2": 0.4, "T3": 0.1})
    generators = [np.random.default_rng(seed) for seed in range(30)]
    settings = EvolutionConfig(broken_valid_rate=0.0)
    assert ids(select_culled(members, settings, 10, earned, generators[0]).culled) == ["T0"]
    assert {choose_parents(members, members[:1], 1, settings, earned, rng)[0].id for rng in generators} == {"T1", "T2"}
    assert ids(select_culled(members, EvolutionConfig(), 10, earned, generators[0]).culled) == ["T2"], "a broken teacher goes first"
    students = [replace(member, id=f"S{member.slot}", role=Role.STUDENT) for member in members]
    assert ids(select_culled(students, settings, 10, earned, generators[0]).culled) == ["S3"]


def test_operators_are_uniform_and_crossover_needs_two_parents():
    rng = np.random.default_rng(0)
    counts = Counter(choose_operator(ARITIES, 2, rng) for _ in range(4000))
    assert set(counts) == set(ARITIES)
    assert all(900 < count < 1100 for count in counts.values())
    assert {choose_operator(ARITIES, 1, rng) for _ in range(50)} == {"m1", "m2"}


def test_no_fitting_operator_is_a_clear_error():
    with pytest.raises(ConfigError, match="add a mutation"):
        choose_operator({"x1": 2}, 1, np.random.default_rng(0))


def test_too_few_parents_is_a_clear_error():
    members = teachers(1.0, 2.0)
    with pytest.raises(PopuloraError, match="2 distinct parents"):
        choose_parents(members, members[:1], 2, EvolutionConfig(), NOTHING, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("parents", "expected"),
    [
        ([Rating(30.0, 1.0)], Rating(30.0, 2.0)),
        ([Rating(30.0, 5.0)], Rating(30.0, 5.0)),
        ([Rating(30.0, 1.0), Rating(20.0, 3.0)], Rating(25.0, 3.0)),
    ],
)
def test_child_starts_at_its_parents_mean_with_wider_doubt(parents, expected):
    assert child_rating(parents, 2.0) == expected
