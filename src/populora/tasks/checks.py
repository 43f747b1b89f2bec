"""The verifier without a trainer: check one program or answer in a sandbox pool.

    with SandboxPool(PROFILES["training"]) as pool:
        run_program(pool, "def f(x):\\n    return x + 1", "41").values[0].literal   # "42"
        check_input(pool, program, answer="41", output="42").correct               # code_i: any input with that output
        check_answer(pool, answer="42", output="42").correct                       # code_o: equal values
        check_solution(pool, answer=program, pairs=[("1", "2"), ("5", "6")]).correct  # code_f: all pairs

The rules are those of the tasks (`populora.tasks.attempts`). Expected outputs come from the caller: they are parsed, not computed
again, and in another process than the answer. Several threads may call the functions with one pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from populora.core.config import TasksConfig
from populora.core.types import Example, Problem, TaskType
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import Job, Verdict
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
