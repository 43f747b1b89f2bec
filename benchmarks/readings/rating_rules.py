"""Simulate which teachers five rules of a matchup rate best: does a rating follow the rewards of Eq. 2?

    python -m benchmarks.readings.rating_rules      writes rating_rules.json here; a minute

Four teachers meet four students for 100 steps, paired by PFSP. A teacher draws 36 problems a step from its difficulties. A student of some
skill solves a problem of difficulty d with probability 1 / (1 + exp(d - skill)), in eight attempts. ``best_rated_loses`` is by how much the
reward of the best rated teacher is below the highest reward, ``worst_rated_gains`` by how much that of the worst rated is above the lowest:
0 is right. ``mu`` is the mean over all members at the end; it is 25 at the beginning. ``student_inversions`` counts neighbours in skill, of
three pairs, whose ratings are the other way round. ``mean_rho`` and ``expected`` are the mean solve rate and the student's predicted chance
in the last half of the steps. All are means over 12 seeds. The rules:

- ``teacher``: the paper's, ``league.unsolved = "teacher"``; ``nobody``: ours, where a teacher that does not earn its win loses alone;
- ``both``: then the student loses as well; ``left out``: unsolved problems do not count for either side;
- ``reward``: the student wins if the teacher earns less than expected.
"""

import math
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
from benchmarks.measuring import options, write_results

from populora.core.config import LeagueConfig, RewardConfig
from populora.core.types import Lineage, Member, Rating, Role
from populora.training.matchmaking import pair
from populora.training.ratings import decide, lower_bound, update
from populora.training.rewards import teacher_reward

LEAGUE = LeagueConfig()
NEVER = math.inf
TEACHERS = {
    "one impossible": ((1.7,), (0.0,), (-2.2,), (NEVER,)),
    "one half impossible": ((1.7,), (0.0,), (-2.2,), (NEVER, 0.0)),
    "one mostly impossible": ((0.0,), (-2.2,), (NEVER,) * 9 + (1.0,), (NEVER,)),
    "one very hard": ((3.0,), (1.7,), (0.0,), (-2.2,)),
    "a quarter of all impossible": tuple((centre - 1, centre, centre + 1, NEVER) for centre in (0.6, 0.2, -0.2, -0.6)),
}
"""Difficulties that each teacher draws from."""
SKILLS = (-0.6, -0.2, 0.2, 0.6)
RULES = ("teacher", "nobody", "both", "left out", "reward")


def main() -> None:
    parser = options(__doc__, Path(__file__).with_name("rating_rules.json"))
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    table = {teachers: {rule: compare(teachers, rule, args.seeds, args.steps) for rule in RULES} for teachers in TEACHERS}
    write_results(args.out, {"seeds": args.seeds, "steps": args.steps, "rules": table})


def compare(teachers: str, rule: str, seeds: int, steps: int) -> dict[str, float]:
    """Return the means over seeds."""
    rows = [simulate(TEACHERS[teachers], rule, steps, np.random.default_rng(seed)) for seed in range(seeds)]
    return {name: round(fmean(row[name] for row in rows), 3) for name in rows[0]}


def simulate(difficulties: tuple[tuple[float, ...], ...], rule: str, steps: int, rng: np.random.Generator) -> dict[str, float]:
    """Play all steps by a rule, and compare the ratings with rewards and skills."""
    names = [*(f"T{index}" for index in range(len(difficulties))), *(f"S{index}" for index in range(len(SKILLS)))]
    ratings = {name: Rating() for name in names}
    rewards: dict[str, list[float]] = {name: [] for name in names if name[0] == "T"}
    late: list[tuple[float, float]] = []  # solve rate and prediction of a matchup
    for step in range(steps):
        members = [Member(name, Role.TEACHER if name[0] == "T" else Role.STUDENT, 0, ratings[name], Lineage(name)) for name in names]
        for matchup in pair(members[: len(difficulties)], members[len(difficulties) :], LEAGUE, rng):
            drawn = rng.choice(difficulties[int(matchup.teacher[1:])], size=36)
            rhos = (rng.binomial(8, 1 / (1 + np.exp(drawn - SKILLS[int(matchup.student[1:])]))) / 8).tolist()
            late += [(fmean(rhos), matchup.expected)] if 2 * step >= steps else []
            rewards[matchup.teacher].append(fmean(teacher_reward(True, rho, RewardConfig()) for rho in rhos))
            student, teacher = ratings[matchup.student], ratings[matchup.teacher]
            ratings[matchup.student], ratings[matchup.teacher] = play(rule, student, teacher, matchup.expected, rhos)
    means = {name: fmean(values) for name, values in rewards.items()}
    ranked = sorted(means, key=lambda name: lower_bound(ratings[name], 1.0))
    students = [ratings[name].mu for name in names if name[0] == "S"]
    return {
        "best_rated_loses": max(means.values()) - means[ranked[-1]],
        "worst_rated_gains": means[ranked[0]] - min(means.values()),
        "mu": fmean(rating.mu for rating in ratings.values()),
        "student_inversions": float(sum(weaker > stronger for weaker, stronger in pairwise(students))),
        "mean_rho": fmean(rho for rho, _ in late),
        "expected": fmean(expected for _, expected in late),
    }


def play(rule: str, student: Rating, teacher: Rating, expected: float, rhos: list[float]) -> tuple[Rating, Rating]:
    """Return both ratings after a matchup."""
    counted = {"left out": [rho for rho in rhos if rho], "reward": [rho or 1.0 for rho in rhos]}.get(rule, rhos)
    unsolved = "nobody" if rule in ("nobody", "both") else "teacher"
    outcome = decide(expected, counted, LeagueConfig(unsolved=unsolved))
    student_wins, teacher_wins = update(student, teacher, LEAGUE), update(teacher, student, LEAGUE)
    return {
        "student": student_wins,
        "teacher": teacher_wins[::-1],
        "neither": (teacher_wins[1] if rule == "both" else student, student_wins[1]),
        "none": (student, teacher),
    }[outcome]


if __name__ == "__main__":
    main()
