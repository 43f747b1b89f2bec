"""What evaluation reads and writes, one JSON object a line: items of a benchmark, completions of a model, verdicts of a grader.

Files are appended to item by item, so work that was stopped goes on where it was; a last line that a kill cut short is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from populora.core.errors import RunDirectoryError
from populora.core.files import disk_errors

LONGEST_COMPLETION = 1 << 18
"""Characters of a completion that is graded: far more than any benchmark's limit of tokens. A longer one is wrong: ``too_long``."""


@dataclass(frozen=True)
class Item:
    """One item of a benchmark. ``fields`` are those of its data file."""

    id: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Completion:
    """A model's answer to an item. Of a completion that was made elsewhere only ``item_id`` and ``completion`` are known."""

    item_id: str
    completion: str
    prompt: str = ""
    finish_reason: str = ""
    """``stop``, or ``length`` where the limit of tokens cut it."""
    prompt_tokens: int = 0
    tokens: int = 0
    reasoning: str = ""
    """What a served model gave apart from its answer; it is not graded."""


@dataclass(frozen=True)
class Grade:
    """A grader's verdict on one completion."""

    item_id: str
    correct: bool
    reason: str = ""
    """Empty where it is right; else ``wrong``, ``no_answer``, ``timeout`` and the like."""
    answer: str = ""
    """What was taken for the answer."""
    readings: dict[str, bool] = field(default_factory=dict)
    """Whether it is right in each way of reading it (``strict``, ``lenient``, …); ``correct`` is the benchmark's headline one."""
    again: str = ""
    """``confirmed`` or ``overturned`` where it failed and was graded once more, alone."""
    of: str = ""
    """Digest of the completion."""


def append(path: Path, record: Completion | Grade) -> None:
    """Append one line. Raises `RunDirectoryError`."""
    with disk_errors(path), path.open("ab") as file:
        file.write(line_of(record))


def line_of(record: Completion | Grade) -> bytes:
    """The record as a line of ASCII JSON."""
    return json.dumps(asdict(record)).encode("ascii") + b"\n"


def read_grades(file: Path) -> dict[str, Grade]:
    """Verdicts by item; none where there is no file. A last line that a kill cut short is no verdict; of two about an item, which a
    kill between the two looks at it leaves, the later one counts.

    Raises `RunDirectoryError` with the line for anything else that is not a verdict.
    """
    if not file.exists():
        return {}
    with disk_errors(file, "read"):
        lines = file.read_bytes().split(b"\n")[:-1]
    grades: dict[str, Grade] = {}
    for number, line in enumerate(lines, 1):
        grade = _grade(line, f"'{file}', line {number}")
        grades[grade.item_id] = grade
    return grades


def _grade(line: bytes, where: str) -> Grade:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise RunDirectoryError(f"{where}: expected a verdict as JSON, got {line[:60]!r} ({error}). Grade the file again.") from error
    wrong = list(_wrong(values))
    if wrong:
        raise RunDirectoryError(f"{where}: expected a verdict, but {', '.join(wrong)}. Grade the file again.")
    known = {one.name for one in fields(Grade)}
    return Grade(**{name: value for name, value in values.items() if name in known})


def _wrong(values: Any) -> Iterator[str]:
    if not isinstance(values, dict):
        yield f"it is {type(values).__name__}"
        return
    for name, kind in (("item_id", str), ("correct", bool)):
        if not isinstance(values.get(name), kind):
            yield f"'{name}' is {values.get(name)!r}, not {kind.__name__}"
    readings = values.get("readings", {})
    if not isinstance(readings, dict) or not all(isinstance(value, bool) for value in readings.values()):
        yield f"'readings' is {readings!r}, not names with true or false"
