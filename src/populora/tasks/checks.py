"""The verifier without a trainer: check single programs and answers in the sandbox.

The rules are those of the tasks (`populora.tasks.attempts`). Expected outputs come from the caller: they are parsed, in another process
than the answer. They are computed again only where nothing but the program says whether their order means something.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from populora.core.config import TasksConfig
from populora.core.errors import ConfigError, SandboxFault
from populora.core.types import Example, Problem, VerdictKind, task_types
from populora.domains.registry import load_domain, runners_of
from populora.sandbox.layers import Tier
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import PROFILES, Job, Limits, Verdict
from populora.sandbox.runner import PYTHON
from populora.tasks.attempts import answer_job, explain_mismatch
from populora.tasks.jobs import key_of, parse_job, reason_of, run_job

ANY_IMPORT = TasksConfig(banned_imports=())
"""Banned imports are a rule of training; here only the sandbox restricts programs."""


@dataclass(frozen=True)
class Check:
    """The result of checking an answer: the sandbox's verdict, and whether it is right."""

    verdict: Verdict
    correct: bool
    kind: str
    """Empty if it is right, else ``wrong``, what the domain calls a wrong output, or the verdict's reason. With the prefix
    ``expected_output:`` the caller's output cannot be read or is not the program's, and nothing was judged."""


class Verifier:
    """The sandbox and the rules of the three tasks, for single programs and answers. Several threads may use one verifier.

    Examples:
        >>> import populora
        >>> with populora.Verifier() as verifier:
        ...     program = "def f(x):\\n    return x + 1"
        ...     value = verifier.run_program(program, "41").values[0].literal
        ...     code_i = verifier.check_input(program, answer="41", output="42").correct
        ...     code_o = verifier.check_answer(answer="43", output="42").kind
        ...     code_f = verifier.check_solution(answer=program, pairs=[("1", "2"), ("5", "7")]).correct
        >>> value, code_i, code_o, code_f
        ('42', True, 'wrong', False)

    In SQL a program is a SELECT, its input a small database, and its output the rows.

    Examples:
        >>> with populora.Verifier(domain="sql") as verifier:
        ...     statement = "SELECT a FROM t WHERE b = 'x'"
        ...     value = verifier.run_program(statement, "t(a,b)\\n1,'x'\\n2,'y'\\n3,'x'").values[0].literal
        ...     sql_i = verifier.check_input(statement, answer="t(a,b)\\n3,'x'\\n1,'x'", output=value).correct
        ...     sql_o = verifier.check_answer(answer="1,'x'", output="1").kind
        >>> value, sql_i, sql_o
        ('1\\n3', True, 'wrong_width')
    """

    def __init__(
        self,
        limits: Limits = PROFILES["training"],
        workers: int = 1,
        allow_weak: bool = False,
        tier: Tier | None = None,
        tasks: TasksConfig = ANY_IMPORT,
        twice: bool = True,
        domain: str = PYTHON,
    ):
        """Start a sandbox for programs of ``domain`` whose ``limits`` bound a program's time, memory and output.

        ``twice`` runs each program in two processes that differ in hash seed, address layout and clock, with two calls in each.
        Unequal values are ``rejected_nondeterministic``. ``tasks`` defines equality and banned imports. Raises
        `SandboxUnavailableError` where this machine's kernel cannot confine programs, unless ``allow_weak``, or lacks ``tier``.
        """
        self._domain, self._tasks, self._twice = load_domain(domain), tasks, twice
        self._input_task, self._output_task, self._program_task = task_types([domain])
        self._pool = SandboxPool(replace(limits, runners=runners_of([domain])), workers, allow_weak, tier)
        self.tier = self._pool.tier

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._pool.close(now=kind is not None)

    def close(self) -> None:
        """End the sandbox's processes, as the end of a ``with`` block does."""
        self._pool.close()

    def run_program(self, program: str, inputs: str) -> Verdict:
        """Run a program on ``inputs``: in Python, compute ``f(<inputs>)`` for an argument list of literals without its parentheses.

        Like the other methods, raises `ConfigError` for an argument that is not text, and `SandboxFault` if the sandbox fails.
        """
        _check_texts(program, inputs)
        return self._run(run_job(self._domain, program, (inputs,), self._tasks), self._twice)

    def _run(self, job: Job, twice: bool = False) -> Verdict:
        """Run a job. Raises `SandboxFault` if the sandbox itself fails: that says nothing about a program or an answer."""
        (verdict,) = self._pool.run([job], twice=twice)
        if verdict.kind is VerdictKind.INTERNAL:
            raise SandboxFault(f"the sandbox failed on a job ({reason_of(verdict)}): ask again, or see `populora doctor`")
        return verdict

    def check_input(self, program: str, answer: str, output: str) -> Check:
        """Check an answer of kind ``i`` (code_i): the program must return a value that equals ``output`` on it."""
        return self._check(Problem("", self._input_task, program, (Example("", output),)), answer)

    def check_answer(self, answer: str, output: str, program: str = "", inputs: str = "") -> Check:
        """Check an answer of kind ``o`` (code_o): the two texts must have equal values.

        A ``program`` runs on ``inputs`` only where its output may have no order, as the rows of SQL. In Python none runs. Without a
        program the order counts.
        """
        return self._check(Problem("", self._output_task, program, (Example(inputs, output),)), answer)

    def check_solution(self, answer: str, pairs: Sequence[tuple[str, str]]) -> Check:
        """Check an answer of kind ``f`` (code_f): a program, right for every (inputs, output) of ``pairs``, at least one."""
        if isinstance(pairs, str) or not pairs or not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
            raise ConfigError(f"pairs: expected at least one pair of texts, such as [('1', '2')], got {pairs!r}")
        return self._check(Problem("", self._program_task, "", (), tuple(Example(inputs, output) for inputs, output in pairs)), answer)

    def _check(self, problem: Problem, answer: str) -> Check:
        pairs = problem.shown + problem.hidden
        _check_texts(problem.program, answer, *(text for pair in pairs for text in (pair.inputs, pair.output)))
        gold, fault = self._gold(problem)
        if fault:
            return Check(gold, False, f"expected_output:{fault}")
        verdict = self._run(answer_job(problem, answer, self._tasks), self._twice)
        if not verdict.ok:
            return Check(verdict, False, verdict.reason)
        # The caller's text does not say whether its order means something: the program does.
        pairs_of_values = zip(gold.values, verdict.values, strict=True)
        expected = tuple(right.unordered if value.is_multiset and right.unordered else right for right, value in pairs_of_values)
        kind = explain_mismatch(problem.task, verdict, expected, key_of(self._tasks))
        return Check(verdict, kind == "", kind)

    def _gold(self, problem: Problem) -> tuple[Verdict, str]:
        """Return the verdict with the expected values, and what is wrong with the caller's outputs, if anything."""
        recorded = self._run(parse_job(self._domain, tuple(pair.output for pair in problem.shown + problem.hidden)))
        may_lack_order = recorded.ok and recorded.values[0].unordered is not None
        if not (problem.task is self._output_task and problem.program and may_lack_order):
            return recorded, recorded.reason
        computed = self.run_program(problem.program, problem.shown[0].inputs)
        if not computed.ok:
            return computed, computed.reason
        return computed, explain_mismatch(problem.task, recorded, computed.values, key_of(self._tasks))


def _check_texts(*arguments: object) -> None:
    for argument in arguments:
        if not isinstance(argument, str):
            raise ConfigError(f"expected programs and values as text, such as '42', got {argument!r} ({type(argument).__name__})")
