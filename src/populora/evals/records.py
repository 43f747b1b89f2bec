"""What evaluation reads and writes, one JSON object a line: items of a benchmark, completions of a model, verdicts of a grader.

Files are appended to item by item, so work that was stopped goes on where it was; a last line that a kill cut short is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from populora.runlog.files import disk_errors

LONGEST_COMPLETION = 1 << 18
"""Characters of a completion that is graded. Far above any benchmark's limit of tokens; a longer one is wrong, with the reason ``too_long``."""


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
