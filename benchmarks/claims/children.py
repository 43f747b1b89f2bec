"""Compute the protocol's measures of children, one value a run: do they recover, and do crossovers keep what their parents could?

A child that is born at a step takes part from the next one on. Members that its window begins with but that are replaced within it are
no reference.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np
from benchmarks.claims.measures import Values

RECOVERY, NEAR, WINDOW = 20, 0.05, 5
TASKS = ("code_i", "code_o", "code_f")
Children = Sequence[Mapping[str, Any]]


def recovered(children: Children, curves: Mapping[str, Values]) -> float:
    """Share of pairs of a child and an older member of its role in which the child is at most `NEAR` below, 16 to 20 steps after birth."""
    return _share(near for child, older in _judged(children, curves) for other in older if (near := _near(child, other)) is not None)


def recovered_excess(children: Children, curves: Mapping[str, Values]) -> float:
    """`recovered`, less the same share of pairs of two older members in the same steps: 0 for a child that is exactly as good."""
    pairs = (pair for _, older in _judged(children, curves) for pair in permutations(older, 2))
    return recovered(children, curves) - _share(near for pair in pairs if (near := _near(*pair)) is not None)


def _judged(children: Children, curves: Mapping[str, Values]) -> Iterator[tuple[Values, list[Values]]]:
    """Yield the window of each child, and those of the members of its role that are older and stay until the window's end."""
    for child in children:
        role, born = child["member"][0], child["born"]
        measure = "student/solve_rate" if role == "S" else "teacher/reward"
        members = [name.rpartition("/")[2] for name in curves if name.startswith(f"{measure}/{role}") and name.count("/") == 2]
        older = [name for name in members if not _replaced(name, children, born - RECOVERY, born + RECOVERY - 1)]
        window = slice(born + RECOVERY - WINDOW, born + RECOVERY)
        if born + RECOVERY <= len(curves["seconds"]):
            yield curves[f"{measure}/{child['member']}"][window], [curves[f"{measure}/{name}"][window] for name in older]


def _near(ours: Values, theirs: Values) -> bool | None:
    """Whether one mean is at most `NEAR` below another; None where either has no value."""
    if np.isnan(ours).all() or np.isnan(theirs).all():
        return None
    return bool(np.nanmean(ours) >= np.nanmean(theirs) - NEAR)


def _share(known: Iterator[bool]) -> float:
    values = list(known)
    return float(np.mean(values)) if values else float("nan")


def parents_kept(children: Children, curves: Mapping[str, Values]) -> float:
    """Solve rate of students by crossover over that of each parent, at the type in which that parent was ahead before the birth.

    The type is chosen by the ten steps before the birth. The rates are those of steps 11 to 20 after it, all added up. Children with a
    parent that is replaced before the end of these steps are left out, and types that one of the three never met; NaN if nothing is left.
    """
    ours = theirs = 0.0
    for child in children:
        born, parents = child["born"], [parent.partition("#")[0] for parent in child["parents"]]
        gone = any(_replaced(parent, children, born - 1, born + RECOVERY - 1) for parent in parents)
        if len(parents) < 2 or child["member"][0] != "S" or gone or born + RECOVERY > len(curves["seconds"]):
            continue
        before, after = slice(born - 10, born), slice(born + 10, born + RECOVERY)
        for parent, other in (parents, parents[::-1]):
            leads = {task: _rate(curves, parent, task, before) - _rate(curves, other, task, before) for task in TASKS}
            ahead = max(TASKS, key=lambda task: -1.0 if np.isnan(leads[task]) else leads[task])
            kept, rate = (_rate(curves, member, ahead, after) for member in (child["member"], parent))
            if not np.isnan(leads[ahead] + kept + rate):
                ours, theirs = ours + kept, theirs + rate
    return ours / theirs if theirs else float("nan")


def _rate(curves: Mapping[str, Values], member: str, task: str, steps: slice) -> float:
    """Mean solve rate at a type over the steps in which the member had a problem of it; NaN without any."""
    rates = curves[f"student/solve_rate/{member}/{task}"][steps]
    return float("nan") if np.isnan(rates).all() else float(np.nanmean(rates))


def _replaced(member: str, children: Children, after: int, until: int) -> bool:
    """Whether a child takes the member's place at the end of a step beyond ``after`` and not beyond ``until``."""
    return any(child["member"] == member and after < child["born"] <= until for child in children)
