"""LiveCodeBench by its official semantics, on the official files of a folder that the user has (``test.jsonl``, ``test2.jsonl``, …).

Programs run in the sandbox (`harness/livecodebench.py`) and their outputs are compared here: of standard output, line by line without
outer white space, equal as text or as decimal numbers; of calls, equal as JSON. Time is AZR's 60 s a test, of CPU. As upstream, problems
with several right answers have one accepted (its errata list about a dozen), and interactive ones cannot be solved.
"""

from __future__ import annotations

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
from populora.evals.jailed import Refused, ask, forged, harness_limits
from populora.evals.records import Grade, Item
from populora.tasks.verifier import Judge

SECONDS = 60.0
LIMITS = harness_limits("livecodebench", ("numpy",), cpu_seconds=600)
_LARGEST = 1 << 30
_AROUND_A_STRING = {"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"}
_FENCE = re.compile(r"```(?:python|py)?[^\n`]*\n(.*?)```", re.DOTALL)


def load_livecodebench(folder: Path) -> list[Item]:
    """The problems of a folder of official files; their tests stay on the disk until they are needed. Raises `ConfigError`."""
    paths = official_files(folder)
    if not paths:
        raise ConfigError(f"'{folder}' has no test*.jsonl: expected the official files of LiveCodeBench's code_generation_lite")
    items = [item for path in paths for item in _items(path)]
    names = [item.id for item in items]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"'{folder}' has problem '{twice}' more than once: expected the files of one release")
    return items


def official_files(folder: Path) -> list[Path]:
    """The official files in a folder: ``test.jsonl``, ``test2.jsonl``, …, in their order."""
    return sorted(folder.glob("test*.jsonl"), key=lambda path: (len(path.name), path.name))


def _items(path: Path) -> Iterator[Item]:
    with path.open("rb") as file:
        while True:
            offset = file.tell()
            line = file.readline()
            if not line:
                return
            if line.strip():
                row = _row(path, offset, line)
                kept = {name: row[name] for name in ("question_id", "question_content", "starter_code")}
                yield Item(str(row["question_id"]), {**kept, "path": str(path), "offset": offset})


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
    """The function to call (empty: standard input), inputs and outputs of all public and private tests. Raises `ConfigError`."""
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
    """Private tests are JSON, or JSON in a pickled string, compressed, in base64."""
    if text.lstrip().startswith("["):
        return json.loads(text)
    unpacked = zlib.decompressobj().decompress(base64.b64decode(text), _LARGEST)
    return json.loads(_pickled_string(unpacked))


def _pickled_string(data: bytes) -> str:
    """The string in a pickle of one, read opcode by opcode: nothing is unpickled. Raises `ValueError` for any other pickle."""
    texts: list[str] = []
    for opcode, argument, _ in pickletools.genops(data):
        if "UNICODE" in opcode.name:
            texts.append(str(argument))
        elif opcode.name not in _AROUND_A_STRING:
            raise ValueError(f"expected a pickled string, got a pickle with {opcode.name}")
    if len(texts) != 1:
        raise ValueError(f"expected a pickled string, got {len(texts)} of them")
    return texts[0]


def solutions(completion: str) -> dict[str, str]:
    """``strict``: the last fence within the last ``<answer>``; ``lenient``, as AZR: the last fence of it, or all of it."""
    content = completion.rpartition("<answer>")[2].partition("</answer>")[0]
    blocks = _FENCE.findall(content)
    strict = blocks[-1] if blocks and "<answer>" in completion else ""
    return {"strict": strict, "lenient": blocks[-1] if blocks else content}


def grade_livecodebench(pool: Judge, benchmark: Benchmark, item: Item, completion: str, is_solution: bool = False) -> Grade:
    """The verdict on a completion. Raises `ConfigError` for tests that cannot be read, `SandboxFault`."""
    texts: dict[str, str] = {"strict": completion, "lenient": completion} if is_solution else solutions(completion)
    tests = cases_of(item)
    reasons = {text: _reason(pool, text, *tests) for text in dict.fromkeys(texts.values())}
    headline = texts[benchmark.headline]
    return Grade(item.id, reasons[headline] == "", reasons[headline], headline, {name: reasons[text] == "" for name, text in texts.items()})


def _reason(pool: Judge, solution: str, function: str, inputs: list[str], outputs: list[str]) -> str:
    if not solution.strip():
        return "no_answer"
    try:
        found = ask(pool, {"code": solution, "function": function, "inputs": inputs, "seconds": SECONDS})
        given, failure = _answered(found)
        for index, (one, wanted) in enumerate(zip(given, outputs, strict=False)):  # outputs end at the first failure
            if not (_equal_values(one, wanted) if function else _equal_lines(one, wanted)):
                return f"wrong:{index}"
    except Refused as refusal:
        return str(refusal)
    return "" if len(given) == len(outputs) and not failure else f"{failure or 'forged'}:{len(given)}"


def _answered(found: Any) -> tuple[list[str], str]:
    match found:
        case {"outputs": list(given), "failure": str(failure)} if all(isinstance(one, str) for one in given):
            return given, failure
    raise forged()


def _equal_values(given: str, wanted: str) -> bool:
    try:
        return json.loads(given) == json.loads(wanted)
    except (ValueError, RecursionError):
        return False


def _equal_lines(given: str, wanted: str) -> bool:
    ours, theirs = given.strip().split("\n"), wanted.strip().split("\n")
    return len(ours) == len(theirs) and all(_equal_line(one.strip(), two.strip()) for one, two in zip(ours, theirs, strict=True))


def _equal_line(one: str, two: str) -> bool:
    if one == two:
        return True
    try:
        return [Decimal(word) for word in one.split()] == [Decimal(word) for word in two.split()]
    except InvalidOperation:
        return False
