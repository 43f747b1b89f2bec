"""The tiny base's held-out suite, judged by the verifier of training (`populora.tasks.verifier`), rule by rule as attempts are.

``strict`` is the runs' default: an answer stands in its fence. ``lenient`` also takes what AZR takes beyond it (``tasks.extraction``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from threading import Lock

from populora.core.config import TasksConfig
from populora.core.types import Generation, VerdictKind
from populora.evals.benchmarks import Benchmark
from populora.evals.records import Grade, Item
from populora.sandbox.protocol import PROFILES, Job, Verdict
from populora.tasks.attempts import SolveRequest
from populora.tasks.render import load_prompts
from populora.tasks.verifier import Judge, Verifier
from populora.training.buffer import problem_from

LIMITS = replace(PROFILES["training"], max_output_chars=400)
"""A run's own limits."""

REMEMBERED = 1 << 17
_LENIENT = TasksConfig(extraction="lenient")


class Remembering:
    """A judge that gives a job that it had before the same verdict: members mostly face equal programs and give equal answers."""

    def __init__(self, judge: Judge):
        self._judge, self._changing = judge, Lock()
        self._known: dict[tuple[Job, bool], Verdict] = {}

    def run(self, jobs: Sequence[Job], twice: bool = False) -> list[Verdict]:
        """As `SandboxPool.run`."""
        new = [job for job in dict.fromkeys(jobs) if (job, twice) not in self._known]
        found = dict(zip(new, self._judge.run(new, twice), strict=True)) if new else {}
        lasting = {(job, twice): verdict for job, verdict in found.items() if verdict.kind is not VerdictKind.INTERNAL}
        with self._changing:
            if len(self._known) + len(lasting) <= REMEMBERED:
                self._known |= lasting
        return [found.get(job) or self._known[job, twice] for job in jobs]


def grade_selfplay(pool: Judge, benchmark: Benchmark, item: Item, completion: str) -> Grade:
    """The verdict on a completion. Raises `SandboxFault`."""
    verifier = Verifier(pool, load_prompts("compact"), _LENIENT, seed=0)
    request = SolveRequest("", -1, 1, (), student="", problem=problem_from(dict(item.fields)))
    ((attempt,),) = verifier.judge([(request, [Generation(completion, (), (), (), 0.0)])])
    readings = {"strict": attempt.correct and not attempt.lenient, "lenient": attempt.correct}
    correct = readings[benchmark.headline]
    reason = "" if correct else attempt.reason or "no_answer"
    return Grade(item.id, correct, reason, "", readings)
