"""``populora verify``: the verifier alone, JSON Lines in and JSON Lines out, for programs in any language.

Every line is one request and gets one line, in order, as soon as it is known; a caller may wait for each answer before it
writes the next line. Lines are judged in parallel, and no further ahead than two for each worker are read.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from populora.cli.arguments import parse
from populora.core.errors import ConfigError
from populora.sandbox.layers import Tier
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import PROFILES, Limits
from populora.tasks.checks import ANY_IMPORT
from populora.tasks.requests import LONGEST_LINE, answer_line

_AHEAD = 2
"""Lines that are read ahead for each worker: enough to keep all of them busy, and a bound on memory."""


@dataclass(frozen=True)
class Verify:
    """Judge programs and answers: JSON Lines from standard input, one result per line on standard output.

    {"id", "role": "program", "program", "inputs"} gives {"id", "verdict", "kind", "value"}.
    {"id", "role": "input", "program", "answer", "output"} (code_i),
    {"id", "role": "answer", "program", "inputs", "answer", "output"} (code_o) and
    {"id", "role": "solution", "answer", "pairs": [[inputs, output], ...]} (code_f) give {"id", "verdict", "kind", "correct"}.
    docs/verifier.md explains all of it.
    """

    profile: Literal["training", "evaluation"] = "training"
    """Limits to start from: training is tight, evaluation is wide and has numpy and threads."""
    cpu_seconds: float | None = None
    """CPU time of a program in each of its two processes; this is the limit that decides."""
    wall_seconds: float | None = None
    """Time that a program may wait without computing."""
    memory_mb: int | None = None
    """Address space of a program."""
    workers: int = 2
    """Programs that run at the same time."""
    equality: Literal["python", "strict"] = "python"
    """When values are equal: Python's ==, or with equal types."""
    once: bool = False
    """Run programs in one process only: half the cost, and non-determinism is not seen."""
    tier: Tier | None = None
    """Demand this sandbox tier instead of the strongest that the machine has."""
    allow_weak: bool = False
    """Accept a machine without system-call filters: programs can then do what your user can."""


def main(arguments: Sequence[str]) -> int:
    """Answer requests until standard input ends; returns 0, or 1 if nobody reads the results. Raises `ConfigError`."""
    chosen = parse(Verify, arguments, "verify")
    given = {name: getattr(chosen, name) for name in ("cpu_seconds", "wall_seconds", "memory_mb")}
    limits: Limits = replace(PROFILES[chosen.profile], **{name: value for name, value in given.items() if value is not None})
    tasks = replace(ANY_IMPORT, equality=chosen.equality)
    try:
        with SandboxPool(limits, chosen.workers, chosen.allow_weak, chosen.tier) as pool:
            sys.stderr.write(f"populora verify: sandbox tier {pool.tier}, profile {chosen.profile}, workers {chosen.workers}\n")
            _answer_all(partial(answer_line, pool, tasks=tasks, twice=not chosen.once), chosen.workers)
    except BrokenPipeError:
        return 1
    except OSError as error:
        raise ConfigError(f"cannot write results to standard output: {error.strerror}") from error
    return 0


def _answer_all(judge: Callable[[bytes], bytes], workers: int) -> None:
    judges = ThreadPoolExecutor(workers)
    results: queue.Queue[Future[bytes] | None] = queue.Queue(_AHEAD * workers)
    threading.Thread(target=_read_ahead, args=(partial(judges.submit, judge), results), daemon=True).start()
    try:
        _write(results)
    finally:
        judges.shutdown(wait=False, cancel_futures=True)  # the pool's end wakes those that wait for it


def _read_ahead(submit: Callable[[bytes], Future[bytes]], results: queue.Queue[Future[bytes] | None]) -> None:
    with open(0, "rb", closefd=False) as lines:
        try:
            while line := lines.readline(LONGEST_LINE + 1):
                results.put(submit(line.rstrip(b"\r\n")))  # waits while enough is in hand
                while line and not line.endswith(b"\n"):  # the rest of a line that is too long, or of the last one
                    line = lines.readline(LONGEST_LINE)
        except RuntimeError:  # the judges have stopped, as nobody reads their results
            return
    results.put(None)


def _write(results: queue.Queue[Future[bytes] | None]) -> None:
    with open(1, "wb", buffering=0, closefd=False) as out:
        while future := results.get():
            line = future.result()
            while line:
                line = line[out.write(line) :]
