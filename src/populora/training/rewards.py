"""Phase 4 of a step, the pure part: rewards (Eq. 1 and 2 of the paper), rho, and who won each matchup.

At solve rate 1 the teacher's ``1 - rho`` is 0, which is also what the paper pays at solve rate 0. ``RewardConfig.boundary``
therefore applies at both ends: 0 follows the paper, -0.5 follows Absolute Zero's released code.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from populora.core.config import Config, LeagueConfig, RewardConfig
from populora.core.errors import PopuloraError
from populora.core.types import Attempt, Matchup, Proposal
from populora.training.ratings import decide


def student_reward(formatted: bool, correct: bool, config: RewardConfig) -> float:
    """Return the reward of one solver response (Eq. 1). A response that fails the format earns ``malformed`` whatever it answers."""
    if not formatted:
        return config.malformed
    return config.correct if correct else config.incorrect


def teacher_reward(valid: bool, rho: float | None, config: RewardConfig) -> float:
    """Return the reward of one proposal (Eq. 2). ``rho`` in [0, 1] is the matched student's solve rate; it is not read for an invalid one.

    ``config.valid_proposal`` may pay for learnability instead (Rutherford et al. 2024, "No Regrets").

    Raises `PopuloraError` for a valid proposal without a solve rate: an unattempted problem has no reward.
    """
    if not valid:
        return config.invalid_proposal
    if rho is None or not 0.0 <= rho <= 1.0:
        raise PopuloraError(f"expected a solve rate in [0, 1] for a valid proposal, got {rho!r}: attempt the problem before paying for it")
    if rho in (0.0, 1.0):
        return config.boundary
    return 1.0 - rho if config.valid_proposal == "difficulty" else 4.0 * rho * (1.0 - rho)


@dataclass(frozen=True)
class CrossEvaluation:
    """Rewards of a step. ``teacher_rewards`` and ``rhos`` align with the proposals, ``student_rewards`` and ``trained`` with the
    attempts. rho is None for an invalid or void problem, the teacher's reward for a void one."""

    matchups: tuple[Matchup, ...]
    teacher_rewards: tuple[float | None, ...]
    rhos: tuple[float | None, ...]
    student_rewards: tuple[float, ...]
    trained: tuple[bool, ...]
    void: frozenset[str]
    """Ids of problems whose gold value did not reproduce: no reward, no training, no game."""


def cross_evaluate(
    config: Config,
    matchups: Sequence[Matchup],
    proposals: Sequence[Proposal],
    attempts: Sequence[Attempt],
    trained_problems: set[tuple[str, str]],
) -> CrossEvaluation:
    """Score a step. rho of a problem is the share of its student's attempts that solve it.

    ``trained_problems`` are the (student, problem id) pairs that students train on.
    """
    void = frozenset(attempt.problem.id for attempt in attempts if attempt.void)
    solved: dict[str, list[bool]] = defaultdict(list)
    for attempt in attempts:
        if not attempt.from_buffer and attempt.problem.id not in void:
            solved[attempt.problem.id].append(attempt.correct)
    shares = {problem: fmean(verdicts) for problem, verdicts in solved.items()}
    rhos = tuple(shares.get(p.problem.id) if p.problem else None for p in proposals)
    teacher_rewards = tuple(
        None if p.problem and p.problem.id in void else teacher_reward(p.problem is not None, rho, config.rewards)
        for p, rho in zip(proposals, rhos, strict=True)
    )
    # A step of a thousand members has a hundred thousand attempts: what is the same for many is computed before.
    rewards = {
        (formatted, correct): student_reward(formatted, correct, config.rewards) for formatted in (False, True) for correct in (False, True)
    }
    trained_pairs = {(student, problem) for student, problem in trained_problems if problem not in void}
    rhos_of_teacher: dict[str, list[float]] = defaultdict(list)
    for proposal, rho in zip(proposals, rhos, strict=True):
        if rho is not None:
            rhos_of_teacher[proposal.author].append(rho)
    return CrossEvaluation(
        matchups=tuple(_decide(matchup, rhos_of_teacher.get(matchup.teacher, []), config.league) for matchup in matchups),
        teacher_rewards=teacher_rewards,
        rhos=rhos,
        student_rewards=tuple([rewards[a.formatted, a.correct] for a in attempts]),
        trained=tuple([(a.student, a.problem.id) in trained_pairs for a in attempts]),
        void=void,
    )


def _decide(matchup: Matchup, rhos: Sequence[float], league: LeagueConfig) -> Matchup:
    """Add the teacher's mean rho and the winner. There is no game without a valid problem (reading 17), nor against oneself."""
    if not rhos:
        return matchup
    outcome = "none" if matchup.teacher == matchup.student else decide(matchup.expected, rhos, league)
    return replace(matchup, mean_rho=fmean(rhos), outcome=outcome)
