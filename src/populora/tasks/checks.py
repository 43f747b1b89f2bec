"""The verifier without a trainer: check single programs and answers in the sandbox.

The rules are those of the tasks (`populora.tasks.attempts`). Expected outputs come from the caller: they are parsed, not computed
again, and in another process than the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from populora.core.config import TasksConfig
from populora.core.types import Example, Problem, TaskType
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import PROFILES, Job, Limits, Verdict
from populora.tasks.attempts import answer_job, compare
from populora.tasks.jobs import key_of, run_job

ANY_IMPORT = TasksConfig(banned_imports=())
"""Banned imports are a rule of training; here only the sandbox restricts programs."""


@dataclass(frozen=True)
class Check:
    """The result of checking an answer: the sandbox's verdict, and whether it is right."""

    verdict: Verdict
    correct: bool
    kind: str
    """Empty if it is right, else ``wrong`` or the verdict's reason. With the prefix ``expected_output:`` the caller's output is not
    a literal, and nothing was judged."""


class Verifier:
    """The sandbox and the rules of the three tasks, for single programs and answers. Several threads may use one verifier.

    >>> import populora
    >>> with populora.Verifier() as verifier:
    ...     program = "def f(x):\\n    return x + 1"
    ...     value = verifier.run_program(program, "41").values[0].literal
    ...     code_i = verifier.check_input(program, answer="41", output="42").correct
    ...     code_o = verifier.check_answer(answer="43", output="42").kind
    ...     code_f = verifier.check_solution(answer=program, pairs=[("1", "2"), ("5", "7")]).correct
    >>> value, code_i, code_o, code_f
    ('42', True, 'wrong', False)
    """

    def __init__(self, limits: Limits = PROFILES["training"], workers: int = 1, allow_weak: bool = False):
        """``limits`` bound a program's time, memory and output. Raises `SandboxUnavailableError` where this machine's kernel cannot
        confine programs, unless ``allow_weak``."""
        self._pool = SandboxPool(limits, workers, allow_weak)

    def __enter__(self) -> Verifier:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def run_program(self, program: str, inputs: str) -> Verdict:
        """See `run_program`."""
        return run_program(self._pool, program, inputs)

    def check_input(self, program: str, answer: str, output: str) -> Check:
        """See `check_input` (code_i)."""
        return check_input(self._pool, program, answer, output)

    def check_answer(self, answer: str, output: str) -> Check:
        """See `check_answer` (code_o)."""
        return check_answer(self._pool, answer, output)

    def check_solution(self, answer: str, pairs: Sequence[tuple[str, str]]) -> Check:
        """See `check_solution` (code_f)."""
        return check_solution(self._pool, answer, pairs)


def run_program(pool: SandboxPool, program: str, inputs: str, tasks: TasksConfig = ANY_IMPORT, twice: bool = True) -> Verdict:
    """Compute ``f(<inputs>)``. ``inputs`` is an argument list of literals without its parentheses.

    ``twice`` runs it in two processes that differ in hash seed, address layout and clock, with two calls in each; unequal values
    are ``rejected_nondeterministic``. Raises `SandboxFault` if the sandbox cannot go on.
    """
    return pool.run([run_job(program, (inputs,), tasks)], twice=twice)[0]


def check_input(
    pool: SandboxPool, program: str, answer: str, output: str, tasks: TasksConfig = ANY_IMPORT, twice: bool = True
) -> Check:  # fmt: skip
    """Check a code_i answer: ``f(<answer>)`` of the program must equal ``output``. The answer is an argument list of literals."""
    return _check(pool, Problem("", TaskType.CODE_I, program, (Example("", output),)), answer, tasks, twice)


def check_answer(pool: SandboxPool, answer: str, output: str, tasks: TasksConfig = ANY_IMPORT) -> Check:
    """Check a code_o answer: the two literals must have equal values. No program runs."""
    return _check(pool, Problem("", TaskType.CODE_O, "", (Example("", output),)), answer, tasks, twice=False)


def check_solution(
    pool: SandboxPool, answer: str, pairs: Sequence[tuple[str, str]], tasks: TasksConfig = ANY_IMPORT, twice: bool = True
) -> Check:  # fmt: skip
    """Check a code_f answer: the program must give the right output for every (inputs, output) of ``pairs``."""
    hidden = tuple(Example(inputs, output) for inputs, output in pairs)
    return _check(pool, Problem("", TaskType.CODE_F, "", (), hidden), answer, tasks, twice)


def _check(pool: SandboxPool, problem: Problem, answer: str, tasks: TasksConfig, twice: bool) -> Check:
    pairs = problem.shown + problem.hidden
    (gold,) = pool.run([Job("parse", texts=tuple(pair.output for pair in pairs))])
    if not gold.ok:
        return Check(gold, False, f"expected_output:{gold.reason}")
    (verdict,) = pool.run([answer_job(problem, answer, tasks)], twice=twice)
    kind = compare(verdict, gold.values, key_of(tasks)) if verdict.ok else verdict.reason
    return Check(verdict, verdict.ok and kind == "", kind)
