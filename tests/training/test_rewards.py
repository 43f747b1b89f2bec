"""Eq. 1 and Eq. 2 of the paper case by case, and rho, rewards, outcomes and ratings of hand-made steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora.core.config import Config, LeagueConfig, RewardConfig
from populora.core.errors import PopuloraError
from populora.core.types import Attempt, Example, Generation, Matchup, Problem, Proposal, Rating, TaskType
from populora.training.population import initial_population, rate
from populora.training.rewards import cross_evaluate, student_reward, teacher_reward

PAPER = RewardConfig()
CONFIG = Config()
SAID = Generation("text", (1,), (2, 3), (-0.1, -0.2), 0.5)


@pytest.mark.parametrize(
    ("formatted", "correct", "reward"), [(True, True, 1.0), (True, False, -0.5), (False, False, -1.0), (False, True, -1.0)]
)
def test_student_reward_is_eq_1(formatted, correct, reward):
    assert student_reward(formatted, correct, PAPER) == reward


@pytest.mark.parametrize(
    ("valid", "rho", "reward"),
    [(False, None, -1.0), (False, 0.5, -1.0), (True, 0.0, 0.0), (True, 0.125, 0.875), (True, 0.5, 0.5), (True, 1.0, 0.0)],
)
def test_teacher_reward_is_eq_2(valid, rho, reward):
    assert teacher_reward(valid, rho, PAPER) == reward


def test_boundary_of_absolute_zero_holds_at_both_ends_only():
    config = RewardConfig(boundary=-0.5)
    assert [teacher_reward(True, rho, config) for rho in (0.0, 0.25, 1.0)] == [-0.5, 0.75, -0.5]


@given(st.integers(2, 64), st.data())
def test_learnability_pays_most_for_the_problems_that_half_of_the_answers_solve(samples, data):
    config = RewardConfig(valid_proposal="learnability", boundary=-0.5)
    rewards = {solved: teacher_reward(True, solved / samples, config) for solved in range(samples + 1)}
    assert rewards[0] == rewards[samples] == -0.5
    solved = data.draw(st.integers(1, samples - 1))
    assert 0 < rewards[solved] <= 1 and rewards[solved] == pytest.approx(rewards[samples - solved])
    assert max(rewards.values()) == pytest.approx(rewards[samples // 2])
    assert rewards[solved] == pytest.approx(4 * solved * (samples - solved) / samples**2)


@given(st.integers(1, 64), st.data())
def test_harder_but_solvable_problems_pay_more(samples, data):
    solved = data.draw(st.integers(1, samples))
    easier = data.draw(st.integers(solved, samples))
    assert teacher_reward(True, solved / samples, PAPER) >= teacher_reward(True, easier / samples, PAPER)


@pytest.mark.parametrize("rho", [None, -0.1, 1.5, float("nan")])
def test_valid_proposal_without_a_solve_rate_is_an_error(rho):
    with pytest.raises(PopuloraError, match="solve rate"):
        teacher_reward(True, rho, PAPER)


def test_every_setting_is_read():
    config = RewardConfig(correct=2.0, incorrect=3.0, malformed=4.0, invalid_proposal=5.0, boundary=6.0)
    assert [student_reward(*case, config) for case in ((True, True), (True, False), (False, False))] == [2.0, 3.0, 4.0]
    assert [teacher_reward(False, None, config), teacher_reward(True, 0.0, config)] == [5.0, 6.0]


def problem(name, author="T0"):
    return Problem(name, TaskType.CODE_O, "def f(x):\n    return x", (Example("1", "1"),), author=author)


def proposal(name, valid=True, author="T0"):
    made = problem(name, author) if valid else None
    return Proposal(author, TaskType.CODE_O, 0, SAID, True, made, "" if valid else "error:syntax")


def attempts(name, solved, student="S0", **changes):
    return [Attempt(student, problem(name), SAID, True, right, **changes) for right in solved]


def evaluate(proposals, tried, trained=frozenset(), expected=0.5):
    return cross_evaluate(CONFIG, [Matchup("T0", "S0", expected)], proposals, tried, set(trained))


def test_rewards_follow_the_equations():
    proposals = [proposal("some"), proposal("none"), proposal("all"), proposal("bad", valid=False)]
    tried = attempts("some", [True, False, False, False]) + attempts("none", [False, False]) + attempts("all", [True, True])
    outcome = evaluate(proposals, tried)
    assert outcome.rhos == (0.25, 0.0, 1.0, None)
    assert outcome.teacher_rewards == (0.75, 0.0, 0.0, -1.0)
    assert outcome.student_rewards[:2] == (1.0, -0.5)


def test_a_void_problem_pays_nobody_and_trains_nobody():
    tried = attempts("good", [True, False]) + attempts("flaky", [True, True], void=True)
    outcome = evaluate([proposal("good"), proposal("flaky")], tried, {("S0", "good"), ("S0", "flaky")})
    assert outcome.void == {"flaky"} and outcome.rhos == (0.5, None) and outcome.teacher_rewards == (0.5, None)
    assert outcome.trained == (True, True, False, False)
    assert outcome.matchups[0].mean_rho == 0.5


def test_a_problem_of_the_buffer_may_be_void_too():
    outcome = evaluate([], attempts("old", [False, False], from_buffer=True, void=True), {("S0", "old")})
    assert outcome.void == {"old"} and outcome.trained == (False, False)


def test_filling_counts_for_training_but_not_for_rho():
    tried = attempts("p", [False, True]) + attempts("old", [True, True], from_buffer=True)
    outcome = evaluate([proposal("p")], tried, {("S0", "old")})
    assert outcome.rhos == (0.5,) and outcome.trained == (False, False, True, True)


@pytest.mark.parametrize(
    ("solved", "expected", "winner"), [(3, 0.5, "student"), (1, 0.5, "teacher"), (2, 0.5, "none"), (2, 0.4, "student")]
)
def test_who_beats_the_expectation_wins(solved, expected, winner):
    outcome = evaluate([proposal("p")], attempts("p", [True] * solved + [False] * (4 - solved)), expected=expected)
    assert outcome.matchups[0].outcome == winner


@pytest.mark.parametrize(("solved", "winner"), [(3, "student"), (2, "teacher")])
def test_with_a_threshold_the_solve_rate_is_compared_with_that_whatever_was_expected(solved, winner):
    config = Config(league=LeagueConfig(outcome="threshold", threshold=0.6))
    for expected in (0.1, 0.9):
        tried = attempts("p", [True] * solved + [False] * (4 - solved))
        (matchup,) = cross_evaluate(config, [Matchup("T0", "S0", expected)], [proposal("p")], tried, set()).matchups
        assert (matchup.outcome, matchup.mean_rho) == (winner, solved / 4)


def test_a_teacher_without_a_valid_problem_plays_no_game():
    outcome = evaluate([proposal("bad", valid=False)], [])
    assert outcome.matchups[0] == Matchup("T0", "S0", 0.5)


def test_ratings_move_apart_and_only_for_those_who_played():
    population = initial_population(CONFIG)
    after = rate(population, [Matchup("T0", "S1", 0.5, 0.8, "student"), Matchup("T1", "S0", 0.5, None, "none")], LeagueConfig())
    assert after.get("S1").rating.mu > 25 > after.get("T0").rating.mu
    assert after.get("T1") == population.get("T1") and after.get("S0") == population.get("S0")


def test_a_student_of_two_teachers_begins_its_second_game_with_the_rating_of_its_first():
    population, games = initial_population(CONFIG), [Matchup(teacher, "S0", 0.5, 0.8, "student") for teacher in ("T0", "T1")]
    after_first = rate(population, games[:1], LeagueConfig())
    assert rate(population, games, LeagueConfig()) == rate(after_first, games[1:], LeagueConfig())


def test_all_members_begin_with_the_rating_of_the_settings():
    population = initial_population(Config(league=LeagueConfig(mu=30.0, sigma=2.0)))
    assert {member.rating for member in population.members} == {Rating(30.0, 2.0)}


def test_only_the_teacher_is_rated_where_neither_won():
    population = initial_population(CONFIG)
    after = rate(population, [Matchup("T0", "S0", 0.5, 0.0, "neither")], LeagueConfig())
    lost = rate(population, [Matchup("T0", "S0", 0.5, 1.0, "student")], LeagueConfig())
    assert after.get("T0") == lost.get("T0") and after.get("S0") == population.get("S0")


def test_the_single_agent_meets_itself_without_a_game():
    proposals = [Proposal("A0", TaskType.CODE_O, 0, SAID, True, problem("p", "A0"))]
    outcome = cross_evaluate(CONFIG, [Matchup("A0", "A0", 0.5)], proposals, attempts("p", [True] * 3 + [False], student="A0"), set())
    assert outcome.matchups[0].outcome == "none" and outcome.matchups[0].mean_rho == 0.75
