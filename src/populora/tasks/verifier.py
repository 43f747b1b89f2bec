"""The verifier: validates proposals and judges attempts for code_i, code_o and code_f, with the sandbox as the only judge.

Task semantics of the Absolute Zero Reasoner (AZR); deviations stand in ``proposals.py`` and ``attempts.py``. This process
only moves text and compares keys that the sandbox made. Gold values are computed again when attempts are judged, because two
agreeing runs do not prove determinism: a problem that no longer reproduces is void for both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Protocol

from populora.core.config import TasksConfig
from populora.core.errors import SandboxFault
from populora.core.types import Attempt, Problem, Proposal, VerdictKind
from populora.sandbox.protocol import Job, Measures, Verdict
from populora.tasks.attempts import AttemptEntry, answer_job, gold_jobs, graded, read_answer
from populora.tasks.jobs import key_of, measure_job, reason_of, run_job
from populora.tasks.parsing import ProposalText
from populora.tasks.proposals import ProposalEntry, check_jobs, checked, completed, read
from populora.tasks.render import PromptSet

MEASURES_KEPT = 65536


class Judge(Protocol):
    """What runs jobs, here or elsewhere; see `SandboxPool.run`."""

    def run(self, jobs: Sequence[Job], twice: bool = False) -> list[Verdict]: ...


class Verifier:
    """Validates and judges with one pool, also in two threads at once. ``seed`` is the run's: it hides half of a code_f problem's pairs."""

    def __init__(self, pool: Judge, prompts: PromptSet, tasks: TasksConfig, seed: int):
        self._pool = pool
        self._prompts = prompts
        self._tasks = tasks
        self._split_seed = seed if tasks.code_f_split == "seeded" else None
        self._measured: dict[Job, Verdict] = {}
        self._remembering = Lock()

    def validate(self, entries: Sequence[ProposalEntry]) -> list[Proposal]:
        """One `Proposal` per entry, in order: one batch of jobs reads the inputs, a second one runs the programs.

        Raises `SandboxFault` when the sandbox itself fails on a job and again on its repetition.
        """
        texts = [read(entry, self._prompts.code_f_inputs) for entry in entries]
        verdicts = self._run(job for text in texts if isinstance(text, ProposalText) for job in check_jobs(text))
        texts = [text if isinstance(text, str) else checked(text, verdicts, key_of(self._tasks)) for text in texts]
        verdicts = self._run(run_job(text.program, text.inputs, self._tasks) for text in texts if isinstance(text, ProposalText))
        outcomes = [
            text if isinstance(text, str) else completed(entry, text, verdicts, self._tasks, self._split_seed)
            for entry, text in zip(entries, texts, strict=True)
        ]
        return [_proposal(entry, outcome) for entry, outcome in zip(entries, outcomes, strict=True)]

    def judge(self, entries: Sequence[AttemptEntry]) -> list[Attempt]:
        """One `Attempt` per entry, in order; equal answers to equal problems run once. Raises `SandboxFault`.

        Gold values and answers go to the pool one after the other, so that no child holds both.
        """
        answers = [read_answer(entry, self._tasks.extraction == "lenient") for entry in entries]
        given = [(entry.problem, answer.text) for entry, answer in zip(entries, answers, strict=True) if answer.text is not None]
        gold = self._run(job for entry in entries for job in gold_jobs(entry.problem, self._tasks))
        solved = self._run(answer_job(problem, text, self._tasks) for problem, text in given)
        return [graded(entry, answer, gold, solved, self._tasks) for entry, answer in zip(entries, answers, strict=True)]

    def measures(self, programs: Sequence[str]) -> list[Measures]:
        """Complexity and fingerprint of each program, remembered from validation. Raises `SandboxFault`."""
        jobs = [measure_job(program) for program in programs]
        verdicts = self._run(jobs)
        return [_measures(verdicts[job]) for job in jobs]

    def _run(self, jobs: Iterable[Job]) -> dict[Job, Verdict]:
        """Verdicts of the distinct jobs, which two processes agree on: no reward hangs on a coin, and a program cannot tell whether
        it is validated or graded. Jobs that failed by the sandbox's own fault are repeated once."""
        distinct = list(dict.fromkeys(jobs))
        with self._remembering:
            verdicts = {job: self._measured[job] for job in distinct if job in self._measured}
        pending = [job for job in distinct if job not in verdicts]
        for _ in ("first", "repetition"):
            if pending:
                verdicts |= zip(pending, self._pool.run(pending, twice=True), strict=True)
            pending = [job for job in pending if verdicts[job].kind is VerdictKind.INTERNAL]
        if pending:
            raise SandboxFault(
                f"the sandbox failed twice on {len(pending)} of {len(distinct)} jobs (last: {reason_of(verdicts[pending[-1]])}): expected a"
                " verdict about the program. No reward was paid for it. See `populora doctor`, then `populora resume` the run."
            )
        self._remember({job: verdict for job, verdict in verdicts.items() if job.mode == "measure"})
        return verdicts

    def _remember(self, measured: dict[Job, Verdict]) -> None:
        with self._remembering:
            self._measured |= measured
            while len(self._measured) > MEASURES_KEPT:
                del self._measured[next(iter(self._measured))]


def _proposal(entry: ProposalEntry, outcome: Problem | str) -> Proposal:
    problem, rejection = (None, outcome) if isinstance(outcome, str) else (outcome, "")
    return Proposal(entry.author, entry.task, entry.group, entry.generation, rejection != "format", problem, rejection)


def _measures(verdict: Verdict) -> Measures:
    if verdict.measures is None:
        raise SandboxFault(f"expected a program that validation accepted, got one that cannot be measured ({reason_of(verdict)})")
    return verdict.measures
