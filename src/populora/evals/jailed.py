"""Graders that are programs in the sandbox: trusted files of ours (``harness/*.py``) around well-kept libraries, fed with model text.

A harness is loaded once by each zygote, with the libraries that it needs, and forked for every question; question and answer are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from populora.core.errors import SandboxFault
from populora.core.types import VerdictKind
from populora.sandbox.protocol import Job, Limits
from populora.tasks.jobs import reason_of
from populora.tasks.verifier import Judge

_QUESTION, _ANSWER = 256 << 20, 64 << 20
"""Characters. LiveCodeBench has problems with tens of megabytes of tests."""


class Refused(Exception):
    """The sandbox ended a question before it was answered; the message is its reason, such as ``timeout``."""


def harness_limits(name: str, packages: tuple[str, ...], cpu_seconds: float) -> Limits:
    """Limits of a pool whose programs are the harness of that name; ``packages`` are what it and what it runs may import."""
    folder = files("populora.evals").joinpath("harness")
    sources = tuple(str(folder.joinpath(f"{part}.py")) for part in ("clock", name))
    return Limits(cpu_seconds, 60.0, 4096, _ANSWER, _QUESTION, packages, threads=True, harness=sources)


def ask(pool: Judge, question: Mapping[str, Any]) -> Any:
    """The harness's answer. Raises `Refused`, and `SandboxFault` where the sandbox itself failed."""
    (verdict,) = pool.run([Job("run", program="from harness import f", texts=(repr(json.dumps(question)),))])
    if verdict.kind is VerdictKind.INTERNAL:
        raise SandboxFault(f"the sandbox failed on a grader's question ({reason_of(verdict)}): grade again, or see `populora doctor`")
    if not verdict.ok:
        raise Refused(reason_of(verdict))
    try:
        return json.loads(verdict.values[0].text or "")
    except ValueError as error:
        raise forged() from error


def forged() -> Refused:
    """For an answer that no harness gives: a program in the same process wrote its own."""
    return Refused("forged")
