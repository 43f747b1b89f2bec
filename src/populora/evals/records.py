"""Records of an evaluation, one JSON object a line: items of a benchmark, completions of a model, verdicts of a grader.

Files are appended to item by item, so that stopped work can resume. A last line that a kill cut short is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from populora.core.errors import RunDirectoryError
from populora.core.files import disk_errors

LONGEST_COMPLETION = 1 << 18
"""Characters of a completion that is graded, far above every benchmark's limit. A longer one is wrong (``too_long``)."""

ModelRole = Literal["base", "agent", "teacher", "student", "adapter"]


@dataclass(frozen=True)
class EvalModel:
    """A model that is evaluated: a bare base or endpoint, a member of a run, or an adapter outside a run. Its files have its name."""

    name: str
    role: ModelRole
    adapter: Path | None = None
    """Its PEFT folder; None for a bare base."""
    step: int | None = None
    """The training step of a member."""


@dataclass(frozen=True)
class Item:
    """One item of a benchmark. ``fields`` are those of its data file."""

    id: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Completion:
    """A model's answer to an item. External completions have only ``item_id`` and ``completion``."""

    item_id: str
    completion: str
    prompt: str = ""
    finish_reason: str = ""
    """``stop``, or ``length`` where the limit of tokens cut it."""
    prompt_tokens: int = 0
    tokens: int = 0
    reasoning: str = ""
    """Reasoning that a served model returned apart from its answer. It is not graded."""


@dataclass(frozen=True)
class Grade:
    """A grader's verdict on one completion."""

    item_id: str
    correct: bool
    reason: str = ""
    """Empty if correct; else ``wrong``, ``no_answer``, ``timeout`` and the like."""
    answer: str = ""
    """The extracted answer."""
    modes: dict[str, bool] = field(default_factory=dict)
    """Whether it is correct in each extraction mode (``strict``, ``lenient``, …); ``correct`` is the benchmark's primary one."""
    retry: str = ""
    """``passed`` or ``failed`` if it failed at first and was graded once more, alone."""
    completion_sha: str = ""
    """Digest of the completion."""


def append(path: Path, record: Completion | Grade) -> None:
    """Append one line. Raises `RunDirectoryError`."""
    with disk_errors(path), path.open("ab") as file:
        file.write(to_line(record))


def to_line(record: Completion | Grade) -> bytes:
    """Encode the record as a line of ASCII JSON."""
    return json.dumps(asdict(record)).encode("ascii") + b"\n"


def read_grades(file: Path) -> dict[str, Grade]:
    """Read verdicts by item; none where there is no file. Of two verdicts on an item (first and retry) the later one counts.

    Raises `RunDirectoryError` with the line for anything that is not a verdict.
    """
    if not file.exists():
        return {}
    with disk_errors(file, "read"):
        lines = file.read_bytes().split(b"\n")[:-1]
    grades = [_parse_grade(line, f"'{file}', line {number}") for number, line in enumerate(lines, 1)]
    return {grade.item_id: grade for grade in grades}


def _parse_grade(line: bytes, where: str) -> Grade:
    try:
        values = json.loads(line)
        types = {"item_id": str, "correct": bool, "modes": dict}
        if wrong := [name for name, kind in types.items() if not isinstance(values.get(name, {}), kind)]:
            raise ValueError(f"'{wrong[0]}' is {values.get(wrong[0])!r}")
        known = {one.name for one in fields(Grade)}
        return Grade(**{name: value for name, value in values.items() if name in known})
    except (ValueError, TypeError, AttributeError) as error:
        raise RunDirectoryError(f"{where}: expected a verdict, got {line[:60]!r} ({error}). Grade the file again.") from error
