"""The shared buffer of valid problems: references for proposers, programs for code_f, filler for students' batches.

There is one per run (reading 7). A program whose normalised AST the buffer of its type already holds is not stored again, and at
``capacity`` the oldest problem is dropped (reading 9).
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from populora.core.errors import BaseModelError
from populora.core.types import Example, Kind, Problem, TaskType

DRAWN_SINGLY = 8
"""Up to that many are drawn one by one, again if one was drawn before: `Generator.choice` takes as long for one as for a hundred."""


class ProblemBuffer:
    """Valid problems by task type, oldest first."""

    def __init__(self, capacity: int, tasks: Iterable[TaskType]):
        self.capacity = capacity
        self._entries: dict[TaskType, dict[str, Problem]] = {task: {} for task in tasks}
        self._listed: dict[tuple[TaskType, ...], list[Problem]] = {}
        """The problems of some types as a list, until problems change: thousands of prompts of a step draw from it."""

    def add(self, problem: Problem, fingerprint: str) -> bool:
        """Store a problem and return True, unless its program is there already; kind ``f`` compares message and inputs as well."""
        inputs = "|".join(sorted(example.inputs for example in (*problem.shown, *problem.hidden)))  # independent of which half is hidden
        key = f"{fingerprint}:{problem.message}:{inputs}" if problem.task.kind is Kind.PROGRAM else fingerprint
        entries = self._entries[problem.task]
        if key in entries:
            return False
        entries[key] = problem
        self._listed.clear()
        if len(entries) > self.capacity:
            del entries[next(iter(entries))]
        return True

    def discard(self, ids: Collection[str]) -> None:
        """Drop problems whose gold value did not reproduce."""
        if not ids:
            return
        self._listed.clear()
        for entries in self._entries.values():
            for key in [key for key, problem in entries.items() if problem.id in ids]:
                del entries[key]

    def problems(self, *tasks: TaskType) -> Sequence[Problem]:
        """List the problems of these types, oldest first. Do not change the list: it is handed out again until the problems change."""
        if tasks not in self._listed:
            self._listed[tasks] = [problem for task in tasks for problem in self._entries[task].values()]
        return self._listed[tasks]

    def references(self, task: TaskType, count: int, rng: np.random.Generator) -> list[Problem]:
        """Draw up to ``count`` references for a proposer; for kind ``f``, one problem of the domain's other kinds."""
        if task.kind is not Kind.PROGRAM:
            return self.draw(task, count, rng)
        return _draw(self.problems(*[other for other in self._entries if other.domain == task.domain and other is not task]), 1, rng)

    def draw(self, task: TaskType, count: int, rng: np.random.Generator) -> list[Problem]:
        """Draw up to ``count`` problems of a type without replacement."""
        return _draw(self.problems(task), count, rng)

    def state(self) -> dict[str, Any]:
        """Return plain values for the checkpoint."""
        return {task: [[key, asdict(problem)] for key, problem in entries.items()] for task, entries in self._entries.items()}

    def restore(self, state: dict[str, Any]) -> None:
        self._entries = {task: {key: problem_from(value) for key, value in state[task]} for task in self._entries}
        self._listed.clear()


def _draw(problems: Sequence[Problem], count: int, rng: np.random.Generator) -> list[Problem]:
    """Draw up to ``count`` different problems."""
    size, indices = len(problems), dict[int, None]()  # in the order of the draws
    count = min(count, size)
    if count > DRAWN_SINGLY:
        return [problems[index] for index in rng.choice(size, count, replace=False).tolist()]
    while len(indices) < count:
        indices[int(size * rng.random())] = None
    return [problems[index] for index in indices]


def problem_from(values: dict[str, Any]) -> Problem:
    """Build a problem from plain values (JSON)."""
    examples = {name: tuple(Example(**example) for example in values[name]) for name in ("shown", "hidden")}
    return Problem(**{**values, **examples, "task": TaskType(values["task"])})


def read_problems(file: Path, remedy: str = "restore it from where the base came") -> list[Problem]:
    """Read problems from a JSON Lines file. Raises `BaseModelError` with the number of a damaged line, and the ``remedy``."""
    problems = []
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        try:
            problems.append(problem_from(json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            raise BaseModelError(
                f"'{file}', line {number}: expected a problem as JSON, got {line[:80]!r} ({type(error).__name__}: {error}). "
                f"The file is damaged: {remedy}."
            ) from error
    return problems
