"""Compute the protocol's measures of training, one value a run: changes of curves, oscillation, coverage, specialisation, children.

A step's mean is noisy, and arms differ in how many problems it is the mean of. So what oscillates is compared with the same steps in
another order, which has the noise and no phases.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from benchmarks.claims.measures import LAST, MeasuredRun, Suite, Values

from populora.core.rng import stream
from populora.core.types import TaskType

CURVES = ("solve_rate", "difficulty", "loc", "cyclomatic", "ast_depth", "variables", "response_length", "entropy")
STUDENTS = {"solve_rate", "response_length"}
"""Curves of students; the others are of teachers."""
TREND, BLOCK, ORDERS = 41, 5, 200
RECOVERY, NEAR, WINDOW = 20, 0.05, 5
TASKS = ("code_i", "code_o", "code_f")
Children = Sequence[Mapping[str, Any]]


def scalars(run: MeasuredRun, suites: Mapping[str, Suite]) -> dict[str, float]:
    """Compute all measures that the run has. A child that nobody can judge is left out, and a measure without any value too."""
    values: dict[str, float] = {}
    for name in CURVES:
        curve = run.curves[f"{'student' if name in STUDENTS else 'teacher'}/{name}"]
        values[name] = float(np.nanmean(curve[-LAST:]))
        values[f"{name}/change"] = values[name] - float(np.nanmean(curve[:LAST]))
    values["oscillation"] = oscillation(run.curves["student/solve_rate"])
    values["coverage_rate"] = coverage_rate(run.curves)
    if "matchup/student_wins" in run.curves:
        values["lead"] = oscillation(run.curves["matchup/student_wins"])
    verdicts = run.greedy("test")
    if len(verdicts) > 1:
        values["specialisation"] = specialisation(verdicts, [problem.task for problem in suites["test"].problems])
    values["recovered"] = recovered(run.facts["children"], run.curves)
    values["parents_kept"] = parents_kept(run.facts["children"], run.curves)
    return {name: value for name, value in values.items() if np.isfinite(value)}


def oscillation(curve: Values) -> float:
    """Standard deviation of 5-step means around the running mean of 41 steps, less its mean over the same steps in random orders.

    It is 0 if a step tells nothing about the next ones. Steps without a value are left out.
    """
    curve = curve[~np.isnan(curve)]
    if len(curve) <= TREND:
        return float("nan")
    smooth = np.convolve(curve, np.ones(TREND) / TREND, mode="valid")
    rest = curve[TREND // 2 : len(curve) - TREND // 2] - smooth
    rng = stream(0, "claims", "oscillation")
    return _spread(rest) - float(np.mean([_spread(rng.permutation(rest)) for _ in range(ORDERS)]))


def _spread(values: Values) -> float:
    blocks = values[: len(values) // BLOCK * BLOCK].reshape(-1, BLOCK).mean(1)
    return float(np.std(blocks))


def coverage_rate(curves: Mapping[str, Values], span: int = 50) -> float:
    """New cells a program in the last steps, by that of the first ones. Programs are those that the archive counts."""
    cells, programs = curves["archive/coverage"], curves["archive/total_problems"]
    late = (cells[-1] - cells[-1 - span]) / (programs[-1] - programs[-1 - span])
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


def recovered(children: Children, curves: Mapping[str, Values]) -> float:
    """Share of children whose mean over steps 16 to 20 after birth is near that of their role's older members; NaN without children."""
    judged = [_near_older(child, children, curves) for child in children if child["born"] + RECOVERY <= len(curves["seconds"])]
    known = [near for near in judged if near is not None]
    return float(np.mean(known)) if known else float("nan")


def _near_older(child: Mapping[str, Any], children: Children, curves: Mapping[str, Values]) -> bool | None:
    member, born = child["member"], child["born"]
    measure = "student/solve_rate" if member[0] == "S" else "teacher/reward"
    names = [name for name in curves if name.startswith(f"{measure}/{member[0]}") and name.count("/") == 2]
    window = slice(born + RECOVERY - WINDOW, born + RECOVERY)
    older = [curves[name][window] for name in names if not _replaced(name.rpartition("/")[2], children, born - RECOVERY, born + RECOVERY)]
    if not older or np.isnan(older).all():
        return None
    return bool(np.nanmean(curves[f"{measure}/{member}"][window]) >= np.nanmean(older) - NEAR)


def parents_kept(children: Children, curves: Mapping[str, Values]) -> float:
    """Solve rate of students by crossover over that of each parent, at the type in which that parent was ahead before the birth.

    The type is chosen by the ten steps before the birth. The rates are those of steps 11 to 20 after it, all added up. Children with a
    parent that is replaced within these steps are left out; NaN if none is left.
    """
    ours = theirs = 0.0
    for child in children:
        born, parents = child["born"], [parent.partition("#")[0] for parent in child["parents"]]
        gone = any(_replaced(parent, children, born - 1, born + RECOVERY) for parent in parents)
        if len(parents) < 2 or child["member"][0] != "S" or gone or born + RECOVERY > len(curves["seconds"]):
            continue
        before, after = slice(born - 10, born), slice(born + 10, born + RECOVERY)
        for parent, other in (parents, parents[::-1]):
            ahead = max(TASKS, key=lambda task: _rate(curves, parent, task, before) - _rate(curves, other, task, before))
            ours, theirs = ours + _rate(curves, child["member"], ahead, after), theirs + _rate(curves, parent, ahead, after)
    return ours / theirs if theirs else float("nan")


def _rate(curves: Mapping[str, Values], member: str, task: str, steps: slice) -> float:
    """Mean solve rate at a type; 0 where the member had no problem of it."""
    return float(np.nan_to_num(curves[f"student/solve_rate/{member}/{task}"][steps]).mean())


def _replaced(member: str, children: Children, after: int, until: int) -> bool:
    """Whether a child takes the member's place in a step beyond ``after`` and not beyond ``until``."""
    return any(child["member"] == member and after < child["born"] <= until for child in children)
