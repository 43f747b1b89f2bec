"""Eq. 1 and Eq. 2 of the paper, case by case."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora.core.config import RewardConfig
from populora.core.errors import PopuloraError
from populora.training.rewards import student_reward, teacher_reward

PAPER = RewardConfig()


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
    assert [student_reward(True, True, config), student_reward(True, False, config), student_reward(False, False, config)] == [
        2.0,
        3.0,
        4.0,
    ]
    assert [teacher_reward(False, None, config), teacher_reward(True, 0.0, config)] == [5.0, 6.0]
