"""Compute the protocol's measures of training, one value a run: changes of curves, oscillation, coverage, specialisation, children.

A step's mean is noisy, and arms differ in how many problems it is the mean of. So the variance that this noise alone would have is taken
from the variance of what oscillates.
"""

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from benchmarks.claims.children import parents_kept, recovered, recovered_excess
from benchmarks.claims.measures import LAST, MeasuredRun, Values

from populora.core.rng import stream
from populora.core.types import TaskType

CURVES = ("solve_rate", "difficulty", "loc", "cyclomatic", "ast_depth", "variables", "response_length", "entropy")
STUDENTS = {"solve_rate", "response_length"}
"""Curves of students; the others are of teachers."""
TREND, BLOCK = 41, 5


def scalars(run: MeasuredRun) -> dict[str, float]:
    """Compute all measures of training that the run has a value of."""
    values: dict[str, float] = {}
    for name in CURVES:
        curve = run.curves[f"{'student' if name in STUDENTS else 'teacher'}/{name}"]
        values[name] = float(np.nanmean(curve[-LAST:]))
        values[f"{name}/change"] = values[name] - float(np.nanmean(curve[:LAST]))
    values["oscillation"] = oscillation(run.curves["student/solve_rate"])
    values["coverage_rate"] = coverage_rate(run.curves)
    if "matchup/student_wins" in run.curves:
        values["lead"] = oscillation(run.curves["matchup/student_wins"])
    for measure in (recovered, recovered_excess, parents_kept):
        values[measure.__name__] = measure(run.facts["children"], run.curves)
    return {name: value for name, value in values.items() if np.isfinite(value)}


def oscillation(curve: Values) -> float:
    """Variance of 5-step means around the running mean of 41 steps, less the variance that steps without any relation would give it.

    Half the mean squared difference of successive steps tells the latter: phases of many steps hardly change it. It is 0 on average if a
    step tells nothing about the next ones. Steps without a value are left out.
    """
    curve = curve[~np.isnan(curve)]
    if len(curve) < TREND + 2 * BLOCK:
        return float("nan")
    noise = float(np.mean(np.diff(curve) ** 2)) / 2
    return float(np.var(_blocks(len(curve)) @ curve)) - noise * _share_of_noise(len(curve))


@cache
def _blocks(steps: int) -> Values:
    """Return the matrix [blocks, steps] that takes a curve to its 5-step means around its running mean."""
    around = np.eye(steps) - sum(np.eye(steps, k=shift) for shift in range(-(TREND // 2), TREND // 2 + 1)) / TREND
    around = around[TREND // 2 : steps - TREND // 2]
    return around[: len(around) // BLOCK * BLOCK].reshape(-1, BLOCK, steps).mean(1)


@cache
def _share_of_noise(steps: int) -> float:
    """Return the expected variance of the blocks of independent steps of variance 1."""
    blocks = _blocks(steps)
    return float(np.sum((blocks - blocks.mean(0)) ** 2) / len(blocks))


def coverage_rate(curves: Mapping[str, Values], span: int = 50) -> float:
    """New cells a program in the last steps, by that of the first ones; 0 without new programs. The archive counts both."""
    cells, programs = curves["archive/coverage"], curves["archive/total_problems"]
    late = (cells[-1] - cells[-1 - span]) / max(programs[-1] - programs[-1 - span], 1)
    return float(late / (cells[span - 1] / programs[span - 1]))


def specialisation(verdicts: Values, types: Sequence[TaskType], splits: int = 200) -> float:
    """Variance between solvers of what is left of their accuracies by type without the solver's and the type's mean.

    Two halves of the problems estimate it apart, and their product has the variance as its mean, whatever the noise of a half.
    """
    rng, names = stream(0, "claims", "specialisation"), list(dict.fromkeys(types))
    places = [np.flatnonzero([task is name for task in types]) for name in names]
    products = []
    for _ in range(splits):
        halves: list[list[Values]] = [[], []]
        for of_type in places:
            shuffled = rng.permutation(of_type)
            for half, part in zip(halves, np.array_split(shuffled, 2), strict=True):
                half.append(np.nanmean(verdicts[:, part], 1))
        first, second = (_interaction(np.array(half).T) for half in halves)
        products.append(np.sum(first * second))
    solvers, kinds = len(verdicts), len(names)
    return float(np.mean(products) / ((solvers - 1) * (kinds - 1)))


def _interaction(table: Values) -> Values:
    return table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
