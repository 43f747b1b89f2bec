"""Which evaluation of a run a command goes on with when it is given again: the run may have trained on meanwhile.

``unfinished.json`` stands in the folder from the first completion to the end of the command, and holds what was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from populora.core.files import disk_errors, json_bytes, read_json, step_folder, steps_in, write_file

UNFINISHED = "unfinished.json"


def begin(folder: Path, command: Mapping[str, Any]) -> None:
    """Note what is being done in ``folder``. Raises `RunDirectoryError`."""
    write_file(folder / UNFINISHED, json_bytes(dict(command)))


def finish(folder: Path) -> None:
    """All is done. Raises `RunDirectoryError`."""
    with disk_errors(folder / UNFINISHED, "remove"):
        (folder / UNFINISHED).unlink(missing_ok=True)


def unfinished(parent: Path, command: Mapping[str, Any]) -> Path | None:
    """The newest step's folder in ``parent`` where the same was begun and not finished. Raises `RunDirectoryError`."""
    for step in reversed(steps_in(parent)):
        file = step_folder(parent, step) / UNFINISHED
        if file.exists() and read_json(file) == command:
            return file.parent
    return None
