"""HumanEval+ and MBPP+: what counts as the solution in a completion, and evalplus's verdict on it (`harness/code.py`).

``lenient`` is the paper's and AZR's: evalplus's extraction, which keeps of the longest text that is Python what the entry point needs.
``strict`` takes the code where the prompt asked for it: in the fence that the prompt opened, or in the first one of the answer.
"""

from __future__ import annotations

import re
from typing import Any

from populora.evals.benchmarks import FIELDS, Benchmark
from populora.evals.jailed import Refused, ask, forged, harness_limits
from populora.evals.records import Grade, Item
from populora.tasks.verifier import Judge

PACKAGES = ("numpy", "evalplus", "tree_sitter", "tree_sitter_python")
LIMITS = harness_limits("code", PACKAGES, cpu_seconds=240)
"""CPU seconds of the reference solution and both checks; tests and checks have limits of their own, AZR's and evalplus's."""

TIMES = {"test_seconds": 10.0, "reference_factor": 8.0, "check_seconds": 60.0, "extraction_seconds": 120.0}
"""CPU seconds of a test, or so many times the reference's if that is more (AZR's settings); of all tests of a check (evalplus's cap)."""

_FENCE = re.compile(r"```[ \t]*(?P<language>[^\n`]*)\n?")
_PYTHON = ("python", "py", "python3")


def fenced(completion: str) -> str:
    """The code in the first Python fence of an answer; or the text before a bare fence, which closes the one that the prompt opened."""
    marks = list(_FENCE.finditer(completion))
    opening = next((mark for mark in marks if mark["language"].strip().lower() in _PYTHON), None)
    if opening is None or (marks[0] is not opening and not marks[0]["language"].strip() and completion[: marks[0].start()].strip()):
        return completion[: marks[0].start()] if marks else completion
    return completion[opening.end() :].partition("```")[0]


def grade_code(pool: Judge, benchmark: Benchmark, item: Item, completion: str, is_solution: bool = False) -> Grade:
    """The verdict on a completion; ``is_solution``: it is plain code, nothing has to be extracted. Raises `SandboxFault`."""
    entry_point = item.fields["entry_point"]
    try:
        texts = {"strict": completion, "lenient": completion} if is_solution else {"strict": fenced(completion)}
        if not is_solution:
            plain = completion.replace("\t", "    ")  # as evalplus does when it generates
            texts["lenient"] = _extracted(ask(pool, {"extract": plain, "entry_point": entry_point, "times": TIMES}))
        verdicts = {text: _verdict(pool, item, text) for text in dict.fromkeys(texts.values())}
    except Refused as refusal:
        return Grade(item.id, False, str(refusal), readings={"strict": False, "lenient": False})
    readings = {name: verdicts[text] == "" for name, text in texts.items()}
    headline = texts[benchmark.headline]
    return Grade(item.id, readings[benchmark.headline], verdicts[headline], headline, readings)


def _extracted(found: Any) -> str:
    """evalplus's solution. Its time grows with the square of the lines, so prose without end may be too much for it."""
    match found:
        case {"solution": str(text)}:
            return text
        case {"failure": "timeout"}:
            raise Refused("extraction_timeout")
    raise forged()


def _verdict(pool: Judge, item: Item, solution: str) -> str:
    """Empty if all tests pass, else why not: ``no_answer``, ``not_loadable``, ``wrong:plus:17``, ``timeout:base:0``, or the sandbox's."""
    if not solution.strip():
        return "no_answer"
    try:
        found = ask(pool, {**{name: item.fields[name] for name in FIELDS["code"]}, "solution": solution, "times": TIMES})
    except Refused as refusal:
        return str(refusal)
    match found:
        case {"verdict": "pass"}:
            return ""
        case {"verdict": "not_loadable"}:
            return "not_loadable"
        case {"verdict": "wrong" | "timeout" as verdict, "check": "base" | "plus" as check, "test": int(test)}:
            return f"{verdict}:{check}:{test}"
    return "forged"
