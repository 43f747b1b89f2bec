"""Cross-evaluation: rho, rewards, outcomes and ratings of hand-made steps."""

import pytest

from populora.core.config import Config, LeagueConfig
from populora.core.types import Attempt, Example, Generation, Matchup, Problem, Proposal, TaskType
from populora.training.cross_evaluation import cross_evaluate, rate
from populora.training.population import initial_population

CONFIG = Config()
SAID = Generation("text", (1,), (2, 3), (-0.1, -0.2), 0.5)


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


def test_a_malformed_answer_costs_the_student_one():
    outcome = evaluate([proposal("p")], [Attempt("S0", problem("p"), SAID, False, False)])
    assert outcome.student_rewards == (-1.0,)


def test_a_void_problem_pays_nobody_and_trains_nobody():
    tried = attempts("good", [True, False]) + attempts("flaky", [True, True], void=True)
    outcome = evaluate([proposal("good"), proposal("flaky")], tried, {("S0", "good"), ("S0", "flaky")})
    assert outcome.void == (False, True) and outcome.rhos == (0.5, None) and outcome.teacher_rewards == (0.5, None)
    assert outcome.trained == (True, True, False, False)
    assert outcome.matchups[0].mean_rho == 0.5


def test_filling_counts_for_training_but_not_for_rho():
    tried = attempts("p", [False, True]) + attempts("old", [True, True], filled=True)
    outcome = evaluate([proposal("p")], tried, {("S0", "old")})
    assert outcome.rhos == (0.5,) and outcome.trained == (False, False, True, True)


@pytest.mark.parametrize(
    ("solved", "expected", "winner"), [(3, 0.5, "student"), (1, 0.5, "teacher"), (2, 0.5, "none"), (2, 0.4, "student")]
)
def test_who_beats_the_expectation_wins(solved, expected, winner):
    outcome = evaluate([proposal("p")], attempts("p", [True] * solved + [False] * (4 - solved)), expected=expected)
    assert outcome.matchups[0].outcome == winner


def test_a_teacher_without_a_valid_problem_plays_no_game():
    outcome = evaluate([proposal("bad", valid=False)], [])
    assert outcome.matchups[0] == Matchup("T0", "S0", 0.5)


def test_ratings_move_apart_and_only_for_those_who_played():
    population = initial_population(CONFIG)
    after = rate(population, [Matchup("T0", "S1", 0.5, 0.8, "student"), Matchup("T1", "S0", 0.5, None, "none")], LeagueConfig())
    assert after.get("S1").rating.mu > 25 > after.get("T0").rating.mu
    assert after.get("T1") == population.get("T1") and after.get("S0") == population.get("S0")


def test_the_single_agent_meets_itself_without_a_game():
    proposals = [Proposal("A0", TaskType.CODE_O, 0, SAID, True, problem("p", "A0"))]
    outcome = cross_evaluate(CONFIG, [Matchup("A0", "A0", 0.5)], proposals, attempts("p", [True, False], student="A0"), set())
    assert outcome.matchups[0].outcome == "none" and outcome.matchups[0].mean_rho == 0.5
