"""The verifier without a trainer: one question about one program or answer, asked of a sandbox pool.

    with SandboxPool(PROFILES["training"]) as pool:
        run_program(pool, "def f(x):\\n    return x + 1", "41").values[0].literal   # "42"
        check_input(pool, program, answer="41", output="42").correct               # code_i: any input with that output
        check_answer(pool, answer="42", output="42").correct                       # code_o: equal values
        check_solution(pool, answer=program, pairs=[("1", "2"), ("5", "6")]).correct  # code_f: all pairs

These are the tasks' own rules (`populora.tasks.attempts`). Expected outputs are the caller's word: they are read, not computed
again, and always in another process than the answer. Functions may be called from several threads with one pool.
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
"""Which modules a program may import is a rule of training; here the default is none but the sandbox's."""


@dataclass(frozen=True)
class Check:
    """What came of an answer: how it ran or was read, and whether it is right."""

    verdict: Verdict
    correct: bool
    kind: str
    """Empty if it is right; ``wrong``, or the verdict's reason. ``expected_output:`` before a reason: the caller's own output is no
    literal, and nothing was judged."""


def run_program(pool: SandboxPool, program: str, inputs: str, tasks: TasksConfig = ANY_IMPORT, twice: bool = True) -> Verdict:
    """The value of ``f(<inputs>)``. ``inputs`` is the argument list without its parentheses, of literals.

    ``twice`` runs it in two processes that differ in hash seed, address layout and clock, with two calls in each; what they do not
    agree on is ``rejected_nondeterministic``. Raises `SandboxFault` if the sandbox cannot go on.
    """
    return pool.run([run_job(program, (inputs,), tasks)], twice=twice)[0]


def check_input(
    pool: SandboxPool, program: str, answer: str, output: str, tasks: TasksConfig = ANY_IMPORT, twice: bool = True
) -> Check:  # fmt: skip
    """code_i: whether ``f(<answer>)`` of the program has the value ``output``. The answer is an argument list of literals."""
    return _check(pool, Problem("", TaskType.CODE_I, program, (Example("", output),)), answer, tasks, twice)


def check_answer(pool: SandboxPool, answer: str, output: str, tasks: TasksConfig = ANY_IMPORT) -> Check:
    """code_o: whether two literals have the same value. No program is run, or known to the process that reads the answer."""
    return _check(pool, Problem("", TaskType.CODE_O, "", (Example("", output),)), answer, tasks, twice=False)


def check_solution(
    pool: SandboxPool, answer: str, pairs: Sequence[tuple[str, str]], tasks: TasksConfig = ANY_IMPORT, twice: bool = True
) -> Check:  # fmt: skip
    """code_f: whether the program ``answer`` gives the right output for every (inputs, output) of ``pairs``."""
    hidden = tuple(Example(inputs, output) for inputs, output in pairs)
    return _check(pool, Problem("", TaskType.CODE_F, "", (), hidden), answer, tasks, twice)


def _check(pool: SandboxPool, problem: Problem, answer: str, tasks: TasksConfig, twice: bool) -> Check:
    pairs = problem.shown + problem.hidden
    (gold,) = pool.run([Job("parse", texts=tuple(pair.output for pair in pairs))])
    if not gold.ok:
        return Check(gold, False, f"expected_output:{gold.reason}")
    (found,) = pool.run([answer_job(problem, answer, tasks)], twice=twice)
    kind = compare(found, gold.values, key_of(tasks)) if found.ok else found.reason
    return Check(found, found.ok and kind == "", kind)
