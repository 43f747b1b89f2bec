"""The JSON Lines of ``populora verify``: one line in, one line out; a line that is no request gets an error of its own.

The line itself comes from the caller. What stands in its strings is model text: it is passed on to the sandbox and nothing else.
"""

from __future__ import annotations

import json
import math
from typing import Any

from populora.core.config import TasksConfig
from populora.sandbox.pool import SandboxPool
from populora.tasks.checks import check_answer, check_input, check_solution, run_program

LONGEST_LINE = 64 << 20
"""Bytes of one request. Far above what any profile accepts: a program that is too long gets its verdict, not this error."""

FIELDS = {
    "program": ("program", "inputs"),
    "input": ("program", "answer", "output"),
    "answer": ("program", "inputs", "answer", "output"),
    "solution": ("answer", "pairs"),
}
"""What a request of each role needs beside ``role``; ``id`` is given back as it came, null if it is absent. More is ignored."""


class Malformed(Exception):
    """A line is no request: what was expected and what came."""


def answer_line(pool: SandboxPool, line: bytes, tasks: TasksConfig, twice: bool) -> bytes:
    """The result of one request as a line of ASCII JSON. Raises `SandboxFault` if the sandbox cannot go on."""
    request: dict[str, Any] = {}
    try:
        request = _object(line)
        result = _result(pool, _checked(request), tasks, twice)
    except Malformed as error:
        result = {"verdict": "error", "kind": "malformed_request", "detail": str(error)}
    return json.dumps({"id": request.get("id"), **result}).encode("ascii") + b"\n"


def _object(line: bytes) -> dict[str, Any]:
    if len(line) > LONGEST_LINE:
        raise Malformed(f"expected a line of at most {LONGEST_LINE} bytes, got a longer one")
    try:
        request = json.loads(line, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"expected one JSON object on the line: {error}") from error
    if not isinstance(request, dict):
        raise Malformed(f"expected a JSON object, got a {type(request).__name__}")
    return request


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"{text} is out of range")
    return float(text)


def _checked(request: dict[str, Any]) -> dict[str, Any]:
    role = request.get("role")
    if not isinstance(role, str) or role not in FIELDS:
        raise Malformed(f"expected 'role' to be one of {', '.join(FIELDS)}, got {ascii(role)[:80]}")
    for name in FIELDS[role]:
        if name not in request:
            raise Malformed(f"a request of role '{role}' needs {', '.join(FIELDS[role])}: '{name}' is missing")
        if name == "pairs" and not _pairs(request[name]):
            raise Malformed("expected 'pairs' to be a list of at least one [inputs, output], both strings")
        if name != "pairs" and not isinstance(request[name], str):
            raise Malformed(f"expected '{name}' to be a string, got {ascii(request[name])[:80]}")
    return request


def _pairs(value: Any) -> bool:
    whole = isinstance(value, list) and value != []
    return whole and all(isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair) for pair in value)


def _result(pool: SandboxPool, request: dict[str, Any], tasks: TasksConfig, twice: bool) -> dict[str, Any]:
    match request["role"]:
        case "program":
            found = run_program(pool, request["program"], request["inputs"], tasks, twice)
            return {"verdict": str(found.kind), "kind": found.reason, "value": found.values[0].literal if found.ok else None}
        case "input":
            check = check_input(pool, request["program"], request["answer"], request["output"], tasks, twice)
        case "answer":
            check = check_answer(pool, request["answer"], request["output"], tasks)
        case _:
            check = check_solution(pool, request["answer"], [(inputs, output) for inputs, output in request["pairs"]], tasks, twice)
    return {"verdict": str(check.verdict.kind), "kind": check.kind, "correct": check.correct}
