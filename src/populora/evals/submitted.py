"""Completions from JSON Lines, ``{"item_id", "completion"}``, of ours or of anybody. What is wrong with a line is told, the rest used."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from populora.core.errors import ConfigError
from populora.core.files import disk_errors
from populora.evals.records import Item

_SHOWN = 60


@dataclass(frozen=True)
class Completions:
    """What a file holds for the items of a benchmark."""

    texts: dict[str, str] = field(default_factory=dict)
    """By item."""
    missing: tuple[str, ...] = ()
    """Items without a completion."""
    complaints: tuple[str, ...] = ()
    """What is wrong with single lines, each with its number."""


def read_completions(path: Path, items: Sequence[Item]) -> Completions:
    """All usable lines of a file; of several for one item the first counts. Raises `ConfigError` for a file that cannot be read."""
    if not path.is_file():
        raise ConfigError(f'there is no file \'{path}\': expected one JSON object with "item_id" and "completion" a line')
    known, texts, complaints = {item.id for item in items}, {}, []
    with disk_errors(path, "read"), path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            complaint = _take(line, known, texts)
            if complaint:
                complaints.append(f"line {number}: {complaint}")
    return Completions(texts, tuple(item.id for item in items if item.id not in texts), tuple(complaints))


def _take(line: bytes, known: Iterable[str], texts: dict[str, str]) -> str:
    """Put the line's completion into ``texts``, or say what is wrong with it."""
    if not line.strip():
        return ""
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"no JSON ({error}): {_shown(line)}"
    if not isinstance(row, dict):
        return f'expected an object with "item_id" and "completion", got a {type(row).__name__}'
    for name, kinds in (("item_id", (str, int)), ("completion", (str,))):
        if name not in row or not isinstance(row[name], kinds) or isinstance(row[name], bool):
            return f'expected "{name}" to be a string, got {_shown(json.dumps(row.get(name)).encode())}'
    item = str(row["item_id"])
    if item not in known:
        return f"there is no item {_shown(item.encode())} in the benchmark"
    if item in texts:
        return f"item {_shown(item.encode())} has a completion already: the first one counts"
    texts[item] = row["completion"]
    return ""


def _shown(data: bytes) -> str:
    text = data[:_SHOWN].decode(errors="replace").strip()
    return ascii(text + ("…" if len(data) > _SHOWN else ""))
