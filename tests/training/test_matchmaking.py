"""PFSP pairing: who can meet whom, how often, and that nobody is used twice."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora.core.config import Config, LeagueConfig, PopulationConfig
from populora.core.errors import ConfigError
from populora.core.types import Lineage, Matchup, Member, Rating, Role
from populora.training.matchmaking import match, pair, pfsp_weight
from populora.training.population import initial_population
from populora.training.ratings import win_probability

LEAGUE = LeagueConfig()


def group(role, ratings):
    prefix = "T" if role is Role.TEACHER else "S"
    return [Member(f"{prefix}{i}", role, i, rating, Lineage(f"{prefix}{i}", 0, 0)) for i, rating in enumerate(ratings)]


def equals(role, count):
    return group(role, [Rating()] * count)


@given(st.lists(st.floats(0, 50), min_size=1, max_size=9), st.lists(st.floats(0, 50), min_size=1, max_size=9), st.integers(0, 99))
def test_every_teacher_meets_one_student_and_loads_are_even(teacher_mus, student_mus, seed):
    teachers = group(Role.TEACHER, [Rating(mu, 2.0) for mu in teacher_mus])
    students = group(Role.STUDENT, [Rating(mu, 1.0 + mu / 10) for mu in student_mus])
    matchups = pair(teachers, students, LEAGUE, np.random.default_rng(seed))
    assert [matchup.teacher for matchup in matchups] == [teacher.id for teacher in teachers]
    loads = Counter(matchup.student for matchup in matchups)
    counts = [loads[student.id] for student in students]
    assert max(counts) - min(counts) <= 1
    by_id = {member.id: member for member in teachers + students}
    for matchup in matchups:
        student = by_id[matchup.student].rating
        assert matchup.expected == win_probability(student.mu, student.sigma, by_id[matchup.teacher].rating, LEAGUE.beta)
        assert (matchup.mean_rho, matchup.outcome) == (None, "none")


def test_the_single_agent_meets_itself():
    config = Config(population=PopulationConfig(single_agent=True))
    assert match(initial_population(config), config, 1) == [Matchup("A0", "A0", expected=0.5)]


def test_agents_that_share_their_adapters_meet_others_and_themselves_only_if_nobody_else_is_left():
    config = Config(population=PopulationConfig(4, 4, shared_adapters=True))
    population = initial_population(config)
    assert [member.id for member in population.members] == ["A0", "A1", "A2", "A3"] and config.population.members == 4
    selves = 0
    for step in range(1, 201):
        matchups = match(population, config, step)
        assert sorted(matchup.student for matchup in matchups) == ["A0", "A1", "A2", "A3"]
        selves += sum(matchup.teacher == matchup.student for matchup in matchups)
    assert 0 < selves < 100  # with equal chances, of 800 matchups 200 would be such


def test_a_large_floor_makes_all_pairings_equally_likely():
    teachers, students = equals(Role.TEACHER, 1), group(Role.STUDENT, [Rating(0.0, 1.0), Rating(25.0, 1.0), Rating(50.0, 1.0)])
    rng = np.random.default_rng(0)
    counts = Counter(pair(teachers, students, LeagueConfig(pfsp_floor=1e6), rng)[0].student for _ in range(3000))
    assert all(count == pytest.approx(1000, abs=100) for count in counts.values())


def test_same_stream_gives_the_same_pairing_and_steps_differ():
    teachers, students = equals(Role.TEACHER, 6), equals(Role.STUDENT, 6)
    draws = [tuple(m.student for m in pair(teachers, students, LEAGUE, np.random.default_rng(seed))) for seed in range(20)]
    assert draws == [tuple(m.student for m in pair(teachers, students, LEAGUE, np.random.default_rng(seed))) for seed in range(20)]
    assert len(set(draws)) > 10


def test_no_teacher_has_the_first_choice_in_every_step():
    """The last one takes who is left. Two teachers both want the even match, so each gets it about as often."""
    teachers, students = equals(Role.TEACHER, 2), group(Role.STUDENT, [Rating(25.0, 1.0), Rating(60.0, 1.0)])
    rng = np.random.default_rng(0)
    even = Counter(matchup.teacher for _ in range(1000) for matchup in pair(teachers, students, LEAGUE, rng) if matchup.student == "S0")
    assert even == {"T0": pytest.approx(500, abs=80), "T1": pytest.approx(500, abs=80)}


def test_draw_frequencies_follow_the_weights():
    teachers = group(Role.TEACHER, [Rating(25.0, 1.0)])
    students = group(Role.STUDENT, [Rating(25.0, 1.0), Rating(35.0, 1.0), Rating(50.0, 1.0)])
    chances = win_probability([25.0, 35.0, 50.0], [1.0, 1.0, 1.0], teachers[0].rating, LEAGUE.beta)
    weights = pfsp_weight(chances, LEAGUE.pfsp_floor)
    rng = np.random.default_rng(0)
    counts = Counter(pair(teachers, students, LEAGUE, rng)[0].student for _ in range(4000))
    observed = np.array([counts[student.id] for student in students]) / 4000
    np.testing.assert_allclose(observed, weights / weights.sum(), atol=0.03)


def test_weight_is_largest_for_a_balanced_pair_and_never_zero():
    assert pfsp_weight(0.5, 0.01) == pytest.approx(0.26)
    assert pfsp_weight(0.0, 0.01) == pfsp_weight(1.0, 0.01) == 0.01
    assert pfsp_weight(0.3, 0.0) == pytest.approx(pfsp_weight(0.7, 0.0))


@pytest.mark.parametrize("floor", [0.0, -0.5])
def test_floor_that_leaves_no_student_is_a_clear_error(floor):
    teachers, students = group(Role.TEACHER, [Rating(0.0, 1.0)]), group(Role.STUDENT, [Rating(900.0, 1.0)])
    with pytest.raises(ConfigError, match="pfsp_floor"):
        pair(teachers, students, LeagueConfig(pfsp_floor=floor), np.random.default_rng(0))
