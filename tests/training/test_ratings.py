"""Ratings against the `trueskill` package and mpmath, and the calibration that the outcome rule is chosen for."""

import math
from statistics import fmean

import mpmath
import numpy as np
import pytest
import trueskill
from hypothesis import given
from hypothesis import strategies as st

from populora.core.config import LeagueConfig, RewardConfig
from populora.core.types import Lineage, Matchup, Member, Rating
from populora.training.population import Population, rate
from populora.training.ratings import decide, update, win_probability
from populora.training.rewards import teacher_reward

LEAGUE = LeagueConfig()
ratings = st.builds(Rating, st.floats(0, 50), st.floats(0.5, 10))
oracle = trueskill.TrueSkill(mu=LEAGUE.mu, sigma=LEAGUE.sigma, beta=LEAGUE.beta, tau=LEAGUE.tau, draw_probability=0.0, backend="scipy")


@given(ratings, ratings)
def test_update_equals_the_trueskill_package(winner, loser):
    won, lost = update(winner, loser, LEAGUE)
    expected = trueskill.rate_1vs1(trueskill.Rating(winner.mu, winner.sigma), trueskill.Rating(loser.mu, loser.sigma), env=oracle)
    for ours, theirs in zip((won, lost), expected, strict=True):
        assert ours.mu == pytest.approx(theirs.mu, rel=1e-9, abs=1e-9)
        assert ours.sigma == pytest.approx(theirs.sigma, rel=1e-9)


@pytest.mark.parametrize("gap", [10.0, 100.0, 179.0, 181.0, 400.0, 5000.0])
def test_upset_of_any_size_stays_exact(gap):
    winner, loser = Rating(0.0, 1.0), Rating(gap, 2.0)
    won, lost = update(winner, loser, LEAGUE)
    with mpmath.workdps(60):
        sw, sl = (mpmath.mpf(r.sigma) ** 2 + mpmath.mpf(LEAGUE.tau) ** 2 for r in (winner, loser))
        c = mpmath.sqrt(2 * mpmath.mpf(LEAGUE.beta) ** 2 + sw + sl)
        t = -gap / c
        v = mpmath.npdf(t) / (mpmath.erfc(-t / mpmath.sqrt(2)) / 2)
        w = v * (v + t)
        assert won.mu == pytest.approx(float(sw / c * v), rel=1e-7)
        assert lost.mu == pytest.approx(float(gap - sl / c * v), rel=1e-7)
        assert won.sigma == pytest.approx(float(mpmath.sqrt(sw * (1 - sw / c**2 * w))), rel=1e-7)


@given(ratings, ratings)
def test_win_probabilities_of_both_sides_add_to_one(ours, theirs):
    p = win_probability(ours.mu, ours.sigma, theirs, LEAGUE.beta)
    assert 0.0 <= p <= 1.0
    assert p + win_probability(theirs.mu, theirs.sigma, ours, LEAGUE.beta) == pytest.approx(1.0)
    assert (p > 0.5) == (ours.mu > theirs.mu) or p == pytest.approx(0.5)


@given(ratings, ratings)
def test_a_win_helps_the_winner_and_never_the_loser(winner, loser):
    won, lost = update(winner, loser, LEAGUE)
    assert won.mu >= winner.mu
    assert lost.mu <= loser.mu
    assert 0 < won.sigma < math.hypot(winner.sigma, LEAGUE.tau) * (1 + 1e-12)


def test_beta_and_tau_are_read():
    first = update(Rating(), Rating(), LEAGUE)
    assert first != update(Rating(), Rating(), LeagueConfig(beta=8.0))
    assert first != update(Rating(), Rating(), LeagueConfig(tau=3.0))


@pytest.mark.parametrize(
    ("expected", "mean_rho", "mode", "winner"),
    [
        (0.6, 0.7, "expected", "student"),
        (0.6, 0.5, "expected", "teacher"),
        (0.6, 0.6, "expected", "none"),
        (0.6, 0.6 + 1e-7, "expected", "none"),
        (0.6, None, "expected", "none"),
        (0.9, 0.6, "threshold", "student"),
        (0.1, 0.4, "threshold", "teacher"),
        (0.1, 0.5, "threshold", "none"),
        (0.1, None, "threshold", "none"),
        (0.1, 0.0, "expected", "teacher"),
    ],
)
def test_the_bar_decides_the_matchup(expected, mean_rho, mode, winner):
    rhos = [] if mean_rho is None else [mean_rho, mean_rho]
    assert decide(expected, rhos, LeagueConfig(outcome=mode, threshold=0.5, unsolved="teacher")) == winner


@pytest.mark.parametrize(
    ("rhos", "winner"),
    [
        ([0.0, 0.0], "neither"),
        ([0.0, 0.5], "neither"),  # pays 0.25 on average, at an expectation of 0.4
        ([0.0, 0.5, 0.25, 0.25, 0.25], "teacher"),
        ([0.3, 0.3], "teacher"),
        ([0.0, 1.0], "student"),
    ],
)
def test_problems_that_nobody_solves_win_no_game_for_the_teacher(rhos, winner):
    expected = 0.5 if rhos == [0.0, 0.5, 0.25, 0.25, 0.25] else 0.4
    assert decide(expected, rhos, LeagueConfig(unsolved="nobody")) == winner


def member(name, rating):
    return Member(name, "teacher" if name == "T" else "student", 0, rating, Lineage(name))


def ratings_after_games(league, difficulties, skills=(-0.6, -0.2, 0.2, 0.6), steps=100):
    """Each step every teacher meets another student, which attempts 36 problems 8 times each. A problem of difficulty d is solved with
    probability 1 / (1 + exp(d - skill)), one of infinite difficulty never. Returns mu of teachers and of students, and rewards by Eq. 2."""
    rng, rewards = np.random.default_rng(0), [list[float]() for _ in difficulties]
    teachers, students = [Rating()] * len(difficulties), [Rating()] * len(skills)
    for step in range(steps):
        for place, difficulty in enumerate(difficulties):
            at = (step + place) % len(skills)
            expected = win_probability(students[at].mu, students[at].sigma, teachers[place], league.beta)
            rhos = (rng.binomial(8, 1 / (1 + np.exp(difficulty - skills[at])), size=36) / 8).tolist()
            rewards[place] += [teacher_reward(True, rho, RewardConfig()) for rho in rhos]
            pair = Population((member("T", teachers[place]), member("S", students[at])))
            matchup = Matchup("T", "S", expected, 0.0, decide(expected, rhos, league))
            teachers[place], students[at] = (member.rating for member in rate(pair, [matchup], league).members)
    return [rating.mu for rating in teachers], [rating.mu for rating in students], [fmean(values) for values in rewards]


def order(values):
    return sorted(range(len(values)), key=values.__getitem__)


@pytest.mark.parametrize("difficulties", [(1.7, 0.0, -2.2, math.inf), (3.0, 1.7, 0.0, -2.2), (1.7, 3.5, math.inf, -1.0)])
def test_teachers_are_rated_in_the_order_of_their_rewards_only_if_unsolved_problems_win_nothing(difficulties):
    teachers, students, rewards = ratings_after_games(LeagueConfig(unsolved="nobody"), difficulties)
    assert order(teachers) == order(rewards)
    assert students[3] > students[0] and min(students) > 10
    teachers, students, rewards = ratings_after_games(LeagueConfig(unsolved="teacher"), difficulties)
    assert order(teachers) == order(difficulties) != order(rewards), "by the paper's rule the hardest problems win, also impossible ones"
    assert order(students) == [0, 1, 2, 3]


def test_expected_mode_calibrates_where_a_fixed_threshold_drives_ratings_apart():
    """A student that always solves 60 % should end up predicted at 60 %."""
    prediction = {}
    for mode in ("expected", "threshold"):
        student, teacher = Rating(), Rating()
        for _ in range(200):
            p = win_probability(student.mu, student.sigma, teacher, LEAGUE.beta)
            outcome = decide(p, [0.6], LeagueConfig(outcome=mode))
            if outcome == "student":
                student, teacher = update(student, teacher, LEAGUE)
            elif outcome == "teacher":
                teacher, student = update(teacher, student, LEAGUE)
        prediction[mode] = win_probability(student.mu, student.sigma, teacher, LEAGUE.beta)
    assert prediction["expected"] == pytest.approx(0.6, abs=0.02)
    assert prediction["threshold"] > 0.99
