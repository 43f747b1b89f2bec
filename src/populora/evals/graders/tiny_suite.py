"""The held-out suites of the embedded bases, graded by the verifier of training (`populora.tasks.verifier`).

``strict`` is the runs' default: an answer is in its fence. ``lenient`` also extracts what AZR does in addition (``tasks.extraction``).
"""

from collections.abc import Sequence
from dataclasses import replace

from populora.core.config import TasksConfig
from populora.core.types import Generation, VerdictKind
from populora.domains.registry import load_domain, runners_of
from populora.evals.benchmarks import Benchmark
from populora.evals.eval_records import Grade, Item
from populora.sandbox.pool import Judge
from populora.sandbox.protocol import PROFILES, Expected, Job, Limits, Verdict
from populora.tasks.attempts import SolveRequest
from populora.tasks.verifier import TaskVerifier
from populora.training.buffer import problem_from

LIMITS = replace(PROFILES["training"], max_output_chars=400)
"""The limits of a run of Python."""
DOMAINS = {"tiny_sql": ("python", "sql")}
"""The domains of a suite that has more than Python."""


def limits_of(benchmark: Benchmark) -> Limits:
    """Return the limits of a run, with the runners that the suite needs."""
    return replace(LIMITS, runners=runners_of(DOMAINS.get(benchmark.name, ())))


def facts_of(benchmark: Benchmark) -> dict[str, str]:
    """Name the versions that decide the suite's verdicts. Raises `ConfigError` where what a domain needs is not installed."""
    return {name: fact for domain in DOMAINS.get(benchmark.name, ()) for name, fact in load_domain(domain).facts().items()}


class CachedJudge:
    """A judge that runs equal jobs once: members have equal programs and mostly give equal answers."""

    def __init__(self, judge: Judge):
        self._judge = judge
        self._verdicts: dict[tuple[Job, bool], Verdict] = {}

    def run(self, jobs: Sequence[Job], twice: bool = False, expected: Expected | None = None, urgent: bool = False) -> list[Verdict]:
        """Run the jobs as `SandboxPool.run`, but all completely, as other jobs' expected values may be others. Failed ones run again."""
        verdicts = {job: self._verdicts[job, twice] for job in jobs if (job, twice) in self._verdicts}
        new = [job for job in dict.fromkeys(jobs) if job not in verdicts or verdicts[job].kind is VerdictKind.INTERNAL]
        verdicts |= zip(new, self._judge.run(new, twice), strict=True)
        self._verdicts |= {(job, twice): verdict for job, verdict in verdicts.items()}
        return [verdicts[job] for job in jobs]


def grade_tiny(pool: Judge, benchmark: Benchmark, item: Item, completion: str) -> Grade:
    """Grade a completion. Raises `SandboxFault`."""
    verifier = TaskVerifier(pool, {}, TasksConfig(extraction="lenient"), seed=0)
    request = SolveRequest("", -1, 1, (), student="", problem=problem_from(dict(item.fields)))
    ((attempt,),) = verifier.judge([(request, [Generation(completion, (), (), (), 0.0)])])
    modes = {"strict": attempt.correct and not attempt.lenient, "lenient": attempt.correct}
    correct = modes[benchmark.primary]
    return Grade(item.id, correct, "" if correct else attempt.reason or "no_answer", "", modes)
