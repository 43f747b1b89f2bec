"""TrueSkill for two players without draws, in closed form (Herbrich et al. 2006; paper, "TrueSkill and matchmaking details").

With c^2 = 2 beta^2 + sigma_w^2 + sigma_l^2 and t = (mu_w - mu_l) / c, a game moves the winner by sigma_w^2/c * v(t) and the
loser by -sigma_l^2/c * v(t), and shrinks each variance by the factor 1 - sigma^2/c^2 * w(t), where v = pdf/cdf and w = v (v + t).
Before the game ``tau`` widens both beliefs, so that ratings keep following members that learn.

The paper's "came out above its conditional expectation" is read as follows: the student wins when mean rho exceeds the predicted
probability that it wins. Predictions then settle at the solve rate. With a fixed ``threshold`` the ratings drift apart for ever.

By this rule the rating of a teacher whose problems nobody solves rises without end, although its reward is 0, and culling keeps it. With
``league.unsolved = "nobody"`` it wins by what Eq. 2 pays: a problem that no attempt solves counts like one that all solve.
Then games without a winner lower the ratings, and predictions settle above the solve rate.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, ndtr  # pyright: ignore[reportMissingTypeStubs]

from populora.core.config import LeagueConfig
from populora.core.types import Rating

DRAW_MARGIN = 1e-6
"""A mean rho this close to the bar is no evidence for either side, so there is no game."""


def win_probability(mu: ArrayLike, sigma: ArrayLike, teacher: Rating, beta: float) -> NDArray[np.float64]:
    """Return for each student, of beliefs ``mu`` [n] and ``sigma`` [n], the probability that it beats ``teacher``:
    Phi((mu_s - mu_t) / sqrt(2 beta^2 + sigma_s^2 + sigma_t^2))."""
    return ndtr((np.asarray(mu) - teacher.mu) / np.sqrt(2.0 * beta**2 + np.square(sigma) + teacher.sigma**2))


def update(winner: Rating, loser: Rating, league: LeagueConfig) -> tuple[Rating, Rating]:
    """Return the ratings of winner and loser after one decided game."""
    winner, loser = _widened(winner, league.tau), _widened(loser, league.tau)
    c = math.sqrt(2.0 * league.beta**2 + winner.sigma**2 + loser.sigma**2)
    v, w = _corrections((winner.mu - loser.mu) / c)
    return _moved(winner, v, w, c), _moved(loser, -v, w, c)


def lower_bound(rating: Rating, k: float) -> float:
    """Return the lower confidence bound mu - k sigma, by which members are ranked for replacement."""
    return rating.mu - k * rating.sigma


def decide(expected: float, rhos: Sequence[float], league: LeagueConfig) -> Literal["student", "teacher", "neither", "none"]:
    """Decide a matchup in which the student was ``expected`` to win, by its solve rates ``rhos`` of the teacher's valid problems.

    Without a valid problem there is no game. With ``league.unsolved`` "teacher" a student that loses has lost to the teacher (paper). With
    "nobody" the teacher has won only if it would win even if the problems that no attempt solved counted as solved. Otherwise neither wins,
    because Eq. 2 pays the teacher nothing for these.
    """
    bar = expected if league.outcome == "expected" else league.threshold
    if not rhos or abs((mean_rho := fmean(rhos)) - bar) < DRAW_MARGIN:
        return "none"
    if mean_rho > bar:
        return "student"
    return "teacher" if league.unsolved == "teacher" or fmean(rho or 1.0 for rho in rhos) < bar else "neither"


def _widened(rating: Rating, tau: float) -> Rating:
    return Rating(rating.mu, math.hypot(rating.sigma, tau))


def _moved(rating: Rating, v: float, w: float, c: float) -> Rating:
    share = rating.sigma**2 / c
    return Rating(rating.mu + share * v, rating.sigma * math.sqrt(1.0 - share / c * w))


def _corrections(t: float) -> tuple[float, float]:
    """Return v(t) and w(t), the sizes of the change of the mean and of the variance."""
    v = math.sqrt(2.0 / math.pi) / float(erfcx(-t / math.sqrt(2.0)))  # pdf / cdf, where both may be smaller than the smallest float
    return v, v * (v + t)
