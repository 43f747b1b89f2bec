"""``populora verify``: the verifier alone, JSON Lines in and JSON Lines out, for programs in any language.

Every line is a request and gets a result line, in order, as soon as it is there. Lines are judged in parallel, and at most two per worker
are read ahead. Strings in a request are model text: they go to the sandbox and are not evaluated here.
"""

import json
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from populora.cli.arguments import parse
from populora.core.errors import ConfigError, SandboxFault
from populora.core.types import VerdictKind
from populora.sandbox.layers import Tier
from populora.sandbox.protocol import PROFILES
from populora.sandbox.runner import PYTHON
from populora.tasks.checks import ANY_IMPORT, Verifier

LINES_AHEAD = 2  # per worker: enough to keep all workers busy, and a bound on memory
EXPECTED = (
    "expected a JSON object with 'role' and the fields of that role, all strings but for 'pairs': program (program, inputs), "
    "input (program, answer, output), answer (program, inputs, answer, output), solution (answer, pairs: [[inputs, output], ...])"
)
"""Error text for a malformed request. ``id`` is optional and returned as it came; further fields are ignored."""


@dataclass(frozen=True)
class Verify:
    """Judge programs and answers: JSON Lines from standard input, one result per line on standard output.

    {"id", "role": "program", "program", "inputs"} gives {"id", "verdict", "kind", "value"}.
    {"id", "role": "input", "program", "answer", "output"} (code_i, sql_i),
    {"id", "role": "answer", "program", "inputs", "answer", "output"} (code_o, sql_o) and
    {"id", "role": "solution", "answer", "pairs": [[inputs, output], ...]} (code_f, sql_f) give {"id", "verdict", "kind", "correct"}.
    docs/verifier.md explains the fields and results.
    """

    domain: str = PYTHON
    """Language of the programs: python, sql, or that of an installed package."""
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
    """Answer requests until standard input ends. Returns 0, or 1 when the reader of the results is gone. Raises `ConfigError`."""
    flags = parse(Verify, arguments, "verify")
    changed = {name: getattr(flags, name) for name in ("cpu_seconds", "wall_seconds", "memory_mb") if getattr(flags, name) is not None}
    if sys.__stdin__ is None:  # it was closed when Python started; a file that an import left open may have its number by now
        raise ConfigError("cannot read requests from standard input: it is closed")
    limits, tasks = replace(PROFILES[flags.profile], **changed), replace(ANY_IMPORT, equality=flags.equality)
    try:
        with Verifier(limits, flags.workers, flags.allow_weak, flags.tier, tasks, not flags.once, flags.domain) as verifier:
            started = f"domain {flags.domain}, sandbox tier {verifier.tier}, profile {flags.profile}, workers {flags.workers}"
            sys.stderr.write(f"populora verify: {started}\n")
            _answer_all(partial(answer_line, verifier), flags.workers)
    except BrokenPipeError:
        return 1
    return 0


def _answer_all(answer: Callable[[bytes], bytes], workers: int) -> None:
    """Judge the lines of standard input in ``workers`` threads and write the results in order. Raises `BrokenPipeError`, `ConfigError`."""
    threads = ThreadPoolExecutor(workers)
    results: queue.Queue[Future[bytes] | None] = queue.Queue(LINES_AHEAD * workers)

    faults: list[OSError] = []

    def read_ahead() -> None:
        try:
            with open(0, "rb", closefd=False) as lines, suppress(RuntimeError):  # the threads have stopped: the reader is gone
                for line in lines:
                    results.put(threads.submit(answer, line))  # waits while the queue is full
        except OSError as error:
            faults.append(error)
        results.put(None)

    threading.Thread(target=read_ahead, daemon=True).start()
    try:
        with open(1, "wb", buffering=0, closefd=False) as out:
            while future := results.get():
                line = future.result()
                while line:
                    line = line[out.write(line) :]
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigError(f"cannot write results to standard output: {error.strerror}") from error
    finally:
        threads.shutdown(wait=False, cancel_futures=True)  # the end of the pool wakes those that wait for it
    if faults:
        raise ConfigError(f"cannot read requests from standard input: {faults[0].strerror}")


def answer_line(verifier: Verifier, line: bytes) -> bytes:
    """Answer one request with a line of ASCII JSON, also if the sandbox fails: then nothing is known."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        request, result = None, _malformed(f"expected one JSON object on the line: {error}")
    else:
        try:
            result = _judge(verifier, request)
        except SandboxFault:
            result = {"verdict": VerdictKind.INTERNAL, "kind": "sandbox_failed", "correct": None}
    name = request.get("id") if isinstance(request, dict) else None
    return json.dumps({"id": name, **result}).encode("ascii") + b"\n"


def _judge(verifier: Verifier, request: Any) -> dict[str, Any]:
    match request:
        case {"role": "program", "program": str(program), "inputs": str(inputs)}:
            verdict = verifier.run_program(program, inputs)
            return {"verdict": verdict.kind, "kind": verdict.reason, "value": verdict.values[0].literal if verdict.ok else None}
        case {"role": "input", "program": str(program), "answer": str(answer), "output": str(output)}:
            check = verifier.check_input(program, answer, output)
        case {"role": "answer", "program": str(program), "inputs": str(inputs), "answer": str(answer), "output": str(output)}:
            check = verifier.check_answer(answer, output, program, inputs)
        case {"role": "solution", "answer": str(answer), "pairs": [_, *_] as pairs} if all(map(_is_pair, pairs)):
            check = verifier.check_solution(answer, pairs)
        case _:
            return _malformed(EXPECTED)
    return {"verdict": check.verdict.kind, "kind": check.kind, "correct": check.correct}


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(text, str) for text in value)


def _malformed(detail: str) -> dict[str, Any]:
    return {"verdict": "error", "kind": "malformed_request", "detail": detail}
