"""Calls of trusted programs in the sandbox (``harness/*.py``), which read model text there. Questions and answers are JSON."""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from populora.core.errors import SandboxFault
from populora.core.types import VerdictKind
from populora.evals.eval_records import Grade, Item
from populora.sandbox.pool import Judge
from populora.sandbox.protocol import Job, Limits, Verdict
from populora.tasks.jobs import reason_of

_QUESTION = 256 << 20
"""Characters. LiveCodeBench has problems with tens of megabytes of tests."""
FORGED = "forged"
"""The reason for an answer that no harness gives: a program in the same process wrote its own."""


class HarnessError(Exception):
    """The sandbox ended a question before it was answered; the message is the reason, such as ``timeout``."""


def harness_limits(name: str, packages: tuple[str, ...], cpu_seconds: float, answer_chars: int = 4 << 20) -> Limits:
    """Set the limits of a pool that runs this harness; ``packages`` are the ones that it and model programs may import.

    ``answer_chars`` is the length of the longest answer. By default it holds the longest completion that is graded, escaped.
    """
    folder = files("populora.evals").joinpath("harness")
    sources = tuple(str(folder.joinpath(f"{part}.py")) for part in ("clock", f"{name}_harness"))
    return Limits(cpu_seconds, 60.0, 4096, answer_chars, _QUESTION, packages, threads=True, harness=sources)


def run_jobs(judge: Judge, jobs: Sequence[Job]) -> Sequence[Verdict]:
    """Run a grader's jobs. Raises `SandboxFault` where the sandbox itself failed."""
    verdicts = judge.run(jobs)
    for verdict in verdicts:
        if verdict.kind is VerdictKind.INTERNAL:
            raise SandboxFault(f"the sandbox failed on a grader's question ({reason_of(verdict)}): grade again, or see `populora doctor`")
    return verdicts


def call_harness(judge: Judge, question: Mapping[str, Any]) -> Any:
    """Ask the harness a question. Raises `HarnessError`, and `SandboxFault` where the sandbox itself failed."""
    (verdict,) = run_jobs(judge, [Job("run", program="from harness import f", texts=(repr(json.dumps(question)),))])
    if not verdict.ok:
        raise HarnessError(reason_of(verdict))
    try:
        return json.loads(verdict.values[0].text or "")
    except (ValueError, RecursionError) as error:
        raise HarnessError(FORGED) from error


def grade_of(item: Item, primary: str, answers: Mapping[str, str], reason: Callable[[str], str]) -> Grade:
    """Grade a completion by its answer in each mode. ``reason`` says why an answer is wrong; empty if it is correct."""
    reasons = {text: reason(text) for text in dict.fromkeys(answers.values())}
    answer = answers[primary]
    return Grade(item.id, not reasons[answer], reasons[answer], answer, {mode: not reasons[text] for mode, text in answers.items()})
