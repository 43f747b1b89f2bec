"""``generation.json``: what the completions in an evaluation's folder depend on. Settings that would mix two kinds of them are refused.

It also says what a folder is: one that holds something else is not written into.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from populora.core.errors import ConfigError
from populora.core.files import PART, disk_errors, json_bytes, read_json, write_file
from populora.evals.folder import DESCRIPTION
from populora.runs.directory import CONFIG, FACTS, LOCK

GENERATION = "generation.json"


def check_folder(out: Path) -> None:
    """Raise `ConfigError` unless ``out`` is free or has an evaluation: what lies there would be written over."""
    with disk_errors(out, "read"):
        found = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    if odd := [name for name in (CONFIG, FACTS) if name in found]:
        raise ConfigError(
            f"'{out}' is a run or a model (it holds '{odd[0]}'), and its adapters could be written over: choose another --out"
        )
    foreign = [name for name in found if name != LOCK and not name.endswith(PART)]
    if foreign and GENERATION not in found and DESCRIPTION not in found:
        raise ConfigError(f"'{out}' is not empty (it holds '{foreign[0]}') and is no evaluation: choose an empty folder with --out")


def read_generation(out: Path) -> dict[str, Any]:
    """What ``out`` was begun with. Raises `RunDirectoryError` for a damaged file."""
    return read_json(out / GENERATION) if (out / GENERATION).exists() else {}


def record(out: Path, values: Mapping[str, Any]) -> None:
    """Add to what ``out`` was begun with, by name and below it. Raises `ConfigError` as `agree`."""
    known = read_generation(out)
    merged = _merged(out, known, values)
    if merged != known:
        write_file(out / GENERATION, json_bytes(merged))


def agree(out: Path, values: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for what differs from what ``out`` was begun with; writes nothing."""
    _merged(out, read_generation(out), values)


def note(out: Path, source: str, name: str, value: float) -> None:
    """Write down what was found out about a source, unless it is there already."""
    known = read_generation(out)
    if name not in known["sources"][source]:
        known["sources"][source][name] = value
        write_file(out / GENERATION, json_bytes(known))


def _merged(out: Path, known: dict[str, Any], values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    merged = dict(known)
    for name, value in values.items():
        if isinstance(value, dict) and isinstance(known.get(name), dict):
            merged[name] = _merged(out, known[name], value, f"{path}{name}.")
        elif name in known and known[name] != value:
            raise ConfigError(
                f"'{out}' was begun with {path}{name} {known[name]!r}, now it is {value!r}: the completions would not be of one kind. "
                "Use the settings of then, or another folder."
            )
        else:
            merged[name] = value
    return merged
