"""The tiny base's held-out suite, judged by the verifier of training (`populora.tasks.verifier`), rule by rule as attempts are.

``strict`` is the runs' default: an answer stands in its fence. ``lenient`` also takes what AZR takes beyond it (``tasks.extraction``).
"""

from __future__ import annotations

from dataclasses import replace

from populora.buffer import problem_from
from populora.config import TasksConfig
from populora.evals.benchmarks import Benchmark
from populora.evals.records import Grade, Item
from populora.sandbox.protocol import PROFILES
from populora.tasks.render import load_prompts
from populora.tasks.verifier import AttemptEntry, Judge, Verifier
from populora.types import Generation

LIMITS = replace(PROFILES["training"], max_output_chars=400)
"""A run's own limits."""

_LENIENT = TasksConfig(extraction="lenient")


def grade_selfplay(pool: Judge, benchmark: Benchmark, item: Item, completion: str) -> Grade:
    """The verdict on a completion. Raises `SandboxFault`."""
    verifier = Verifier(pool, load_prompts("compact"), _LENIENT, seed=0)
    entry = AttemptEntry("", problem_from(dict(item.fields)), Generation(completion, (), (), (), 0.0))
    (attempt,) = verifier.judge([entry])
    readings = {"strict": attempt.correct and not attempt.lenient, "lenient": attempt.correct}
    correct = readings[benchmark.headline]
    reason = "" if correct else attempt.reason or "no_answer"
    return Grade(item.id, correct, reason, "", readings)
