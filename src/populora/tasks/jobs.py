"""What the verifier asks of the sandbox, and how a verdict's name is written in the records."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from populora.sandbox.protocol import Job, Value, Verdict
from populora.types import VerdictKind

AZR_BANNED_IMPORTS = (
    "logging", "random", "multiprocessing", "pebble", "subprocess", "threading", "datetime", "time", "hashlib", "hmac", "bcrypt",
    "os.sys", "os.path", "sys.exit", "os.environ", "calendar",
)  # fmt: skip
"""Modules that a program may not import: a rule of the task, not a layer of protection (that is the sandbox)."""

Verdicts = Mapping[Job, Verdict]
Key = Callable[[Value], str]
"""Two values are equal where their keys are: ``comparable`` (Python's ``==``, as AZR) or ``canonical`` (strict types)."""


def run_job(program: str, inputs: tuple[str, ...]) -> Job:
    """Call the program's ``f`` on each argument list."""
    return Job("run", program=program, texts=inputs, banned_imports=AZR_BANNED_IMPORTS)


def measure_job(program: str) -> Job:
    """Complexity and fingerprint of the program, without running it."""
    return Job("measure", program=program)


def reason_of(verdict: Verdict) -> str:
    """The name of a verdict that is not ok: ``error:exception:ValueError``, ``out_of_resources``, ``rejected_nondeterministic``.

    A program that grows without end meets the CPU limit or the memory limit, whichever comes first on the day; both are one
    reason, or equal seeds would not give equal records.
    """
    if verdict.kind is VerdictKind.TIMEOUT or verdict.reason in ("memory", "exception:MemoryError"):
        return "out_of_resources"
    return f"{verdict.kind}:{verdict.reason}" if verdict.reason else str(verdict.kind)
