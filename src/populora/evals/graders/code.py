"""HumanEval+ and MBPP+: extract the solution, and let evalplus decide (`harness/code_harness.py`).

``lenient`` is the paper's and AZR's mode: evalplus's extraction, which keeps the part of the longest Python text that the entry point
needs. ``strict`` takes the code in the fence that the prompt opened, or in the first Python fence of the answer.
"""

import re

from populora.evals.benchmarks import FIELDS, Benchmark
from populora.evals.eval_records import Grade, Item
from populora.evals.graders.harness_call import FORGED, HarnessError, call_harness, grade_of, harness_limits
from populora.sandbox.pool import Judge

PACKAGES = ("numpy", "evalplus", "tree_sitter", "tree_sitter_python")
LIMITS = harness_limits("code", PACKAGES, cpu_seconds=240)
"""CPU seconds of the reference solution and both checks. Tests and checks have their own limits (`TIMES`)."""

TIMES = {"test_seconds": 10.0, "reference_factor": 8.0, "check_seconds": 60.0, "extraction_seconds": 120.0}
"""CPU seconds of a test, or the factor times the reference's if that is more (AZR's settings); of a check (evalplus's cap)."""

_FENCE = re.compile(r"```[ \t]*(?P<language>[^\n`]*)\n?")
_PYTHON = ("python", "py", "python3")


def fenced(completion: str) -> str:
    """Extract the code in the first Python fence, or before a bare fence, which closes the one that the prompt opened."""
    marks = list(_FENCE.finditer(completion))
    opening = next((mark for mark in marks if mark["language"].strip().lower() in _PYTHON), None)
    if opening is None or (marks[0] is not opening and not marks[0]["language"].strip() and completion[: marks[0].start()].strip()):
        return completion[: marks[0].start()] if marks else completion
    return completion[opening.end() :].partition("```")[0]


def grade_code(pool: Judge, benchmark: Benchmark, item: Item, completion: str, is_solution: bool = False) -> Grade:
    """Grade a completion, or plain code if ``is_solution``. Raises `SandboxFault`."""
    if is_solution:
        answers = {"strict": completion, "lenient": completion}
    else:
        answers = {"strict": fenced(completion)}
        try:
            answers["lenient"] = _extract(pool, completion, item.fields["entry_point"])
        except HarnessError as error:  # the other mode needs no extraction
            return Grade(item.id, False, str(error), modes={"strict": not _reason(pool, item, answers["strict"]), "lenient": False})
    return grade_of(item, benchmark.primary, answers, lambda text: _reason(pool, item, text))


def _extract(pool: Judge, completion: str, entry_point: str) -> str:
    """Extract the solution with evalplus, whose time grows with the square of the lines. Raises `HarnessError`."""
    plain = completion.replace("\t", "    ")  # as evalplus does when it generates
    match call_harness(pool, {"extract": plain, "entry_point": entry_point, "times": TIMES}):
        case {"solution": str(text)}:
            return text
        case {"failure": "timeout"}:
            raise HarnessError("extraction_timeout")
    raise HarnessError(FORGED)


def _reason(pool: Judge, item: Item, solution: str) -> str:
    """Return ``no_answer``, ``not_loadable``, ``wrong:plus:17``, ``timeout:base:0`` or the sandbox's reason; empty if all tests pass."""
    if not solution.strip():
        return "no_answer"
    try:
        fields = {name: item.fields[name] for name in FIELDS["code"]}
        answer = call_harness(pool, {**fields, "solution": solution, "times": TIMES})
    except HarnessError as error:
        return str(error)
    match answer:
        case {"verdict": "pass"}:
            return ""
        case {"verdict": "not_loadable"}:
            return "not_loadable"
        case {"verdict": "wrong" | "timeout" as verdict, "check": "base" | "plus" as check, "test": int(test)}:
            return f"{verdict}:{check}:{test}"
    return FORGED
