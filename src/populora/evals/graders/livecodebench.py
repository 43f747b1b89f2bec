"""LiveCodeBench by its official semantics, on the official files in a user's folder (``test.jsonl``, ``test2.jsonl``, …).

Programs run in the sandbox (`harness/livecodebench_harness.py`) and their outputs are compared here. Standard output is compared line by
line without outer white space, as text or as decimal numbers; results of calls are compared as JSON. The limit is AZR's 60 s of CPU a
test. As upstream, problems with several right answers accept one (its errata list about a dozen), and interactive ones cannot be solved.

Deviations, each towards what the program does elsewhere: it may begin with ``from __future__``, read ``sys.stdin.buffer``, and have a class
Solution beside what it prints.
"""

import base64
import json
import pickletools
import re
import zlib
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from populora.core.errors import ConfigError
from populora.evals.benchmarks import Benchmark
from populora.evals.eval_records import Grade, Item
from populora.evals.graders.harness_call import FORGED, HarnessError, call_harness, grade_of, harness_limits
from populora.sandbox.pool import Judge

SECONDS = 60.0
LIMITS = harness_limits("livecodebench", ("numpy",), cpu_seconds=600, answer_chars=64 << 20)
"""The answer has the outputs of all tests."""
_LARGEST = 1 << 30
_AROUND_A_STRING = {"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"}
_RANKS = {"python": 2, "python3": 2, "py": 2, "": 1}
"""Languages of fences by how likely they hold the program; any other has 0."""
_FENCE = re.compile(r"```[ \t]*([^\s`]*)[^\n`]*\n(.*?)```", re.DOTALL)


def load_livecodebench(folder: Path) -> list[Item]:
    """Load the problems of a folder of official files; tests are read when they are needed. Raises `ConfigError`."""
    paths = official_files(folder)
    if not paths:
        raise ConfigError(f"'{folder}' has no test*.jsonl: expected the official files of LiveCodeBench's code_generation_lite")
    return [item for path in paths for item in _items(path)]


def official_files(folder: Path) -> list[Path]:
    """List the official files in a folder, in their order."""
    return sorted(folder.glob("test*.jsonl"), key=lambda path: (len(path.name), path.name))


def _items(path: Path) -> Iterator[Item]:
    offset = 0
    with path.open("rb") as file:
        for line in file:
            if line.strip():
                row = _row(path, offset, line)
                kept = {name: row[name] for name in ("question_id", "question_content", "starter_code")}
                yield Item(str(row["question_id"]), {**kept, "path": str(path), "offset": offset})
            offset += len(line)


def _row(path: Path, offset: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
        missing = {"question_id", "question_content", "starter_code", "public_test_cases", "private_test_cases", "metadata"} - row.keys()
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"'{path}', byte {offset}: expected a problem as a JSON object ({error})") from error
    if missing:
        raise ConfigError(f"'{path}', byte {offset}: a problem lacks {', '.join(sorted(missing))}")
    return row


def cases_of(item: Item) -> tuple[str, list[str], list[str]]:
    """Read the function to call (empty: standard input), and the inputs and outputs of all tests. Raises `ConfigError`."""
    path = Path(item.fields["path"])
    with path.open("rb") as file:
        file.seek(item.fields["offset"])
        row = _row(path, item.fields["offset"], file.readline())
    try:
        tests = [*json.loads(row["public_test_cases"]), *_private(row["private_test_cases"])]
        function = json.loads(row["metadata"]).get("func_name") or ""
        return function, [test["input"] for test in tests], [test["output"] for test in tests]
    except (ValueError, TypeError, KeyError, zlib.error) as error:
        raise ConfigError(f"'{path}': the tests of problem '{item.id}' cannot be read ({type(error).__name__}: {error})") from error


def _private(text: str) -> list[dict[str, str]]:
    """Decode private tests: JSON, or JSON in a pickled string, compressed, in base64."""
    if text.lstrip().startswith("["):
        return json.loads(text)
    unpacked = zlib.decompressobj().decompress(base64.b64decode(text), _LARGEST)
    return json.loads(_pickled_string(unpacked))


def _pickled_string(data: bytes) -> str:
    """Read the string in a pickle of one, opcode by opcode, without unpickling. Raises ``ValueError`` for any other pickle."""
    texts: list[str] = []
    for opcode, argument, _ in pickletools.genops(data):
        if "UNICODE" in opcode.name:
            texts.append(str(argument))
        elif opcode.name not in _AROUND_A_STRING:
            raise ValueError(f"expected a pickled string, got a pickle with {opcode.name}")
    if len(texts) != 1:
        raise ValueError(f"expected a pickled string, got {len(texts)} of them")
    return texts[0]


def extract_solutions(completion: str) -> dict[str, str]:
    """Extract the last program in the last ``<answer>`` (``strict``), or as AZR also all of it where there is no fence (``lenient``).

    It is in the last fence of Python; where there is none, in the last without a language, or else in the last of any.
    """
    content = completion.rpartition("<answer>")[2].partition("</answer>")[0]
    fences = sorted(_FENCE.findall(content), key=lambda fence: _RANKS.get(fence[0].lower(), 0))  # stable: the last of the best is last
    program = fences[-1][1] if fences else content
    return {"strict": program if fences and "<answer>" in completion else "", "lenient": program}


def grade_livecodebench(pool: Judge, benchmark: Benchmark, item: Item, completion: str, is_solution: bool = False) -> Grade:
    """Grade a completion, or plain code if ``is_solution``. Raises `ConfigError` for unreadable tests, `SandboxFault`."""
    answers = {"strict": completion, "lenient": completion} if is_solution else extract_solutions(completion)
    tests = cases_of(item)
    return grade_of(item, benchmark.primary, answers, lambda text: _reason(pool, text, *tests))


def _reason(pool: Judge, solution: str, function: str, inputs: list[str], outputs: list[str]) -> str:
    if not solution.strip():
        return "no_answer"
    try:
        answer = call_harness(pool, {"code": solution, "function": function, "inputs": inputs, "seconds": SECONDS})
    except HarnessError as error:
        return str(error)
    match answer:
        case {"outputs": list(actual), "failure": str(failure)} if all(isinstance(text, str) for text in actual):
            equal = _equal_values if function else _equal_lines
            for index, (text, expected) in enumerate(zip(actual, outputs, strict=False)):  # outputs end at the first failure
                if not equal(text, expected):
                    return f"wrong:{index}"
            return "" if len(actual) == len(outputs) and not failure else f"{failure or FORGED}:{len(actual)}"
    return FORGED


def _equal_values(actual: str, expected: str) -> bool:
    try:
        return json.loads(actual) == json.loads(expected)
    except (ValueError, RecursionError):
        return False


def _equal_lines(actual: str, expected: str) -> bool:
    lines, expected_lines = actual.strip().split("\n"), expected.strip().split("\n")
    return len(lines) == len(expected_lines) and all(_equal_line(a.strip(), b.strip()) for a, b in zip(lines, expected_lines, strict=True))


def _equal_line(actual: str, expected: str) -> bool:
    if actual == expected:
        return True
    try:
        return [Decimal(word) for word in actual.split()] == [Decimal(word) for word in expected.split()]
    except InvalidOperation:
        return False
