"""The messages of the sandbox: jobs go in, verdicts come out.

A frame is a 4-byte big-endian length and JSON. The trainer reads replies of bounded size with `json.loads` and checks them field by
field. Whatever a program writes on its own channel, it can at worst claim other values for the jobs of its child: for itself, unless its
domain's programs are contained (`populora.sandbox.runner.Runner`).
"""

import json
import re
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from populora.core.errors import ConfigError
from populora.core.types import Measures, VerdictKind
from populora.sandbox.runner import PYTHON, Runner
from populora.sandbox.values import TooLong, Value, value_from_tree, value_of_domain

REASONS = frozenset(
    "syntax not_a_literal no_entry_point banned_import output_limit unsupported_value memory signal "
    "exit_without_result source_limit undeclared_reason".split()
)
"""Reasons of ``error``, in addition to those that a domain's runner declares and ``exception:<TypeName>`` with the nearest built-in type.
``timeout`` has ``cpu`` and ``wall``, ``blocked`` has ``seccomp``."""

_EXCEPTION = re.compile(r"exception:[A-Za-z]{1,40}")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Limits:
    """Bounds of one job: seconds, MiB of address space, characters. Raises `ConfigError` unless all are positive."""

    cpu_seconds: float = 2.0
    """The limit that decides."""
    wall_seconds: float = 10.0
    """Limit for programs that wait; extended while a program computes at 5 % of a core, so that load causes no timeouts."""
    memory_mb: int = 1024
    max_output_chars: int = 400
    """Longest literal of one returned value; longer ones are refused."""
    max_source_chars: int = 65536
    """Longest program and longest text of arguments or answer."""
    packages: tuple[str, ...] = ()
    """Third-party packages that programs may import in addition to the standard library."""
    distributions: tuple[str, ...] = ()
    """Distributions whose versions a package asks for at its import, such as ``antlr4-python3-runtime``."""
    expressions: bool = False
    """Accept pure expressions as arguments (`populora.sandbox.expressions`), not only literals."""
    threads: bool = False
    """Let programs start threads (where a system-call filter holds); they may never start processes."""
    harness: tuple[str, ...] = ()
    """Python files of this package, loaded in order into the module ``harness`` before programs are forked; they may import
    ``packages``."""
    runners: tuple[Runner, ...] = field(default=(), repr=False)
    """Domains whose programs can run, in addition to Python."""

    def __post_init__(self) -> None:
        for name in ("cpu_seconds", "wall_seconds", "memory_mb", "max_output_chars", "max_source_chars"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"sandbox limit '{name}': expected more than 0, got {getattr(self, name)}")


PROFILES = {
    "training": Limits(max_output_chars=65536),
    "evaluation": Limits(
        cpu_seconds=10.0, wall_seconds=60.0, memory_mb=4096, max_output_chars=1 << 20, max_source_chars=1 << 20, packages=("numpy",),
        expressions=True, threads=True,
    ),
}  # fmt: skip
"""Limits to start from: ``training`` for programs that a model proposes, ``evaluation`` for solutions of public benchmarks."""


@dataclass(frozen=True)
class Job:
    """A job for a sandbox child.

    ``run`` runs ``program`` once for every text of inputs: for Python, it calls ``f`` on an argument list of literals such as
    ``"[1, 2], 3"``. ``parse`` reads each text as an output, or with ``as_inputs`` as inputs. ``measure`` computes the program's complexity
    and never executes it.
    """

    mode: Literal["run", "parse", "measure"]
    program: str = ""
    texts: tuple[str, ...] = ()
    as_inputs: bool = False
    rules: tuple[str, ...] = ()
    """``run``: what the task bans, in the words of the domain's runner; not a protection."""
    domain: str = PYTHON


Expected = Mapping[Job, Collection[tuple[str, ...]]]
"""The right values of jobs, each as comparable texts (`populora.sandbox.values.Value`); equal jobs may have several."""


@dataclass(frozen=True)
class Verdict:
    """The result of a job. Only ``ok`` carries values (``run``, ``parse``: one for each text) or measures."""

    kind: VerdictKind
    reason: str = ""
    values: tuple[Value, ...] = ()
    measures: Measures | None = None
    doubtful: bool = False
    """The program makes sets or names a source of chance, so agreement of two processes may be luck."""

    @property
    def ok(self) -> bool:
        return self.kind is VerdictKind.OK


def encode_request(jobs: Sequence[Job], calls: int) -> bytes:
    """Build the frame that a child reads; every ``run`` calls ``f`` ``calls`` times for each text."""
    body = json.dumps({"calls": calls, "jobs": [vars(job) for job in jobs]}).encode("ascii")
    return struct.pack(">I", len(body)) + body


def reply_bound(jobs: Sequence[Job], limits: Limits) -> int:
    """Upper bound of an honest reply in bytes: an escaped character takes at most 12, a tag less than 8. Domains may send a text twice.

    A harness answers in JSON, of which a character takes at most 2. CRUXEval's answers with values, far shorter than its limit.
    """
    chars = sum(limits.max_output_chars * len(job.texts) if job.mode == "run" else sum(map(len, job.texts)) for job in jobs)
    if limits.harness and all(job.mode == "run" for job in jobs):
        return 65536 + 2 * chars
    return 65536 + (16 if all(job.domain == PYTHON for job in jobs) else 32) * chars


def decode_reply(reply: bytes, jobs: Sequence[Job], limits: Limits) -> list[Verdict] | None:
    """Read the verdicts in a child's reply. Returns None unless it is one complete well-formed frame for these jobs."""
    if len(reply) < 4 or struct.unpack(">I", reply[:4])[0] != len(reply) - 4:
        return None
    try:
        results = json.loads(reply[4:])
        if not isinstance(results, list) or len(results) != len(jobs):
            return None
        return [_verdict(result, job, limits) for result, job in zip(results, jobs, strict=True)]
    except (ValueError, RecursionError):
        return None


def _verdict(result: Any, job: Job, limits: Limits) -> Verdict:
    match result:
        case {"kind": "error", "reason": str(reason)} if reason in REASONS or _EXCEPTION.fullmatch(reason):
            return Verdict(VerdictKind.ERROR, reason)
        case {"kind": "error", "reason": str(reason)} if job.domain != PYTHON:
            declared = next(runner.reasons for runner in limits.runners if runner.domain == job.domain)
            return Verdict(VerdictKind.ERROR, reason if reason in declared else "undeclared_reason")
        case {"kind": "rejected_nondeterministic"} if job.mode == "run":
            return Verdict(VerdictKind.REJECTED_NONDETERMINISTIC, "calls_differ")
        case {"kind": "ok", "values": list(trees)} if job.mode != "measure" and len(trees) == len(job.texts):
            longest = limits.max_output_chars if job.mode == "run" else 4 * limits.max_source_chars
            try:
                values = _values(trees, result.get("texts"), job, longest)
            except TooLong:
                return Verdict(VerdictKind.ERROR, "output_limit")
            return Verdict(VerdictKind.OK, values=values, doubtful=result.get("doubtful") is True)
        case {"kind": "ok", "measures": [*measures, str(fingerprint)]} if job.mode == "measure" and _FINGERPRINT.fullmatch(fingerprint):
            if len(measures) == 4 and all(map(_is_measure, measures)):
                return Verdict(VerdictKind.OK, measures=Measures(tuple(measures), fingerprint))
    raise ValueError("not a result of this job")


def _is_measure(value: Any) -> bool:
    """Return True for an integer that tables and archives can hold."""
    return type(value) is int and abs(value) < 2**31


def _values(trees: list[Any], texts: Any, job: Job, longest: int) -> tuple[Value, ...]:
    """Build the values of trees; of a domain that writes its own texts, with those. Raises `ValueError`, and `TooLong` for long ones."""
    if job.domain == PYTHON:
        return tuple(value_from_tree(tree, longest=longest, as_arguments=job.as_inputs) for tree in trees)
    if not isinstance(texts, list) or len(texts) != len(trees) or not all(isinstance(text, str) for text in texts):
        raise ValueError("a text for each value")
    if max(map(len, texts), default=0) > longest:
        raise TooLong("too long")
    return tuple(value_of_domain(tree, text) for tree, text in zip(trees, texts, strict=True))


def settle(first: Verdict, second: Verdict) -> Verdict:
    """Combine two runs in different processes; the order is internal, blocked, timeout, nondeterministic, error, ok."""
    for kind in (VerdictKind.INTERNAL, VerdictKind.BLOCKED, VerdictKind.TIMEOUT, VerdictKind.REJECTED_NONDETERMINISTIC):
        for verdict in (first, second):
            if verdict.kind is kind:
                return verdict
    if first.kind is not second.kind or [value.canonical for value in first.values] != [value.canonical for value in second.values]:
        return Verdict(VerdictKind.REJECTED_NONDETERMINISTIC, "processes_differ")
    return first
