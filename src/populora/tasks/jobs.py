"""Jobs of the verifier for the sandbox, and the names of verdicts in the records."""

from collections.abc import Callable, Mapping
from operator import attrgetter

from populora.core.config import TasksConfig
from populora.core.types import VerdictKind
from populora.domains.declaration import Domain
from populora.sandbox.protocol import Job, Value, Verdict

Verdicts = Mapping[Job, Verdict]
Key = Callable[[Value], str]
"""Two values are equal if their keys are."""


def key_of(tasks: TasksConfig) -> Key:
    """Select the key: ``comparable`` (Python's ``==``, as AZR) or ``canonical`` (equal types too)."""
    return attrgetter("canonical" if tasks.equality == "strict" else "comparable")


def run_job(domain: Domain, program: str, inputs: tuple[str, ...], tasks: TasksConfig) -> Job:
    """Build the job that runs the program on each input."""
    return Job("run", program=program, texts=inputs, rules=domain.rules(tasks), domain=domain.name)


def parse_job(domain: Domain, texts: tuple[str, ...], as_inputs: bool = False) -> Job:
    """Build the job that reads outputs or inputs."""
    return Job("parse", texts=texts, as_inputs=as_inputs, domain=domain.name)


def measure_job(domain: Domain, program: str) -> Job:
    """Build the job that computes the program's complexity and fingerprint without running it."""
    return Job("measure", program=program, domain=domain.name)


def reason_of(verdict: Verdict) -> str:
    """Name a verdict that is not ok: ``error:exception:ValueError``, ``out_of_resources``, ``rejected_nondeterministic``.

    A program that grows without end meets the CPU limit or the memory limit by chance. Both are one reason, so that equal seeds
    give equal records.
    """
    if verdict.kind is VerdictKind.TIMEOUT or verdict.reason == "memory":
        return "out_of_resources"
    return f"{verdict.kind}:{verdict.reason}" if verdict.reason else str(verdict.kind)
