"""The two rewards: Eq. 1 for students, Eq. 2 for teachers (paper, "Objective and reward").

At solve rate 1 the teacher's ``1 - rho`` is 0, which is also what the paper pays at solve rate 0. ``RewardConfig.boundary``
therefore stands at both ends: 0 is the paper, -0.5 is what Absolute Zero's released code pays there.
"""

from __future__ import annotations

from populora.core.config import RewardConfig
from populora.core.errors import PopuloraError


def student_reward(formatted: bool, correct: bool, config: RewardConfig) -> float:
    """Eq. 1: reward of one solver response. A response that fails the format earns ``malformed`` whatever it answers."""
    if not formatted:
        return config.malformed
    return config.correct if correct else config.incorrect


def teacher_reward(valid: bool, rho: float | None, config: RewardConfig) -> float:
    """Eq. 2: reward of one proposal. ``rho`` in [0, 1] is the matched student's solve rate; it is not read for an invalid one.

    Raises `PopuloraError` for a valid proposal without a solve rate: an unattempted problem has no reward.
    """
    if not valid:
        return config.invalid_proposal
    if rho is None or not 0.0 <= rho <= 1.0:
        raise PopuloraError(f"expected a solve rate in [0, 1] for a valid proposal, got {rho!r}: attempt the problem before paying for it")
    return config.boundary if rho in (0.0, 1.0) else 1.0 - rho
