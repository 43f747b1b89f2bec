"""Durable file operations of a run directory: write to a temporary name, fsync, rename.

A reader never sees half a file or half a folder. Unfinished files carry the suffix ``.part``, which readers ignore and the next writer
removes. Errors of the disk become `RunDirectoryError` with the path and a remedy.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from populora.core.errors import ConfigError, RunDirectoryError

PART = ".part"

_FULL = (
    "The disk (or its quota) is full: free some space and try again. A run keeps its finished steps: `populora resume RUN` continues it."
)
_DENIED = "Choose another place, or change the permissions."
_REMEDIES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: _DENIED,
}


@contextmanager
def disk_errors(path: Path, action: str = "write") -> Iterator[None]:
    """Turn an ``OSError`` of the block into a `RunDirectoryError` that names the path and what to do."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "Check the path and the disk.")
        if remedy is _DENIED and action == "read":
            remedy = "Change the permissions."
        raise RunDirectoryError(f"cannot {action} '{path}': {error.strerror or error}. {remedy}") from error


def user_cache() -> Path:
    """Return the folder of what populora computes or downloads once for a user. Raises `ConfigError` for a user without a home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "populora"
    except RuntimeError as error:
        raise ConfigError("this user has no home folder for what is kept between runs: set HOME or XDG_CACHE_HOME") from error


def make_folder(path: Path) -> None:
    """Create a folder and those above it, where they are absent. Raises `RunDirectoryError`."""
    with disk_errors(path, "create"):
        path.mkdir(parents=True, exist_ok=True)


def write_file(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data`` atomically. Raises `RunDirectoryError`."""
    part = _aside(path)
    with disk_errors(path):
        _write_synced(part, data)
        os.replace(part, path)
        _sync_folder(path.parent)


def write_durably(path: Path, data: bytes) -> None:
    """Write a file of a folder that is `new_folder`'s, and make its own folder. Raises `RunDirectoryError`."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_synced(path, data)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Create the folder ``path`` atomically: yields one beside it, to write into with `write_durably`, and moves it there at the end of the
    block. Raises `RunDirectoryError`, also where ``path`` exists."""
    part = _aside(path)
    with disk_errors(path):
        if part.exists():
            shutil.rmtree(part)
        part.mkdir(parents=True)
    yield part
    with disk_errors(path):
        for folder in [part, *(inner for inner in part.rglob("*") if inner.is_dir())]:
            _sync_folder(folder)
        os.rename(part, path)
        _sync_folder(path.parent)


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Create the folder ``path`` with these files (names may be relative paths) atomically.

    Raises `RunDirectoryError`, also where it exists.
    """
    with new_folder(path) as part:
        for name, data in files.items():
            write_durably(part / name, data)


def replace_link(path: Path, target: Path) -> None:
    """Make ``path`` a symbolic link to ``target`` (relative to its folder) atomically. Raises `RunDirectoryError`."""
    part = _aside(path)
    with disk_errors(path):
        part.unlink(missing_ok=True)
        part.symlink_to(target)
        os.replace(part, path)
        _sync_folder(path.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder so that no reader sees it half removed. Raises `RunDirectoryError`."""
    part = _aside(path)
    with disk_errors(path, "remove"):
        if part.exists():
            shutil.rmtree(part)
        os.rename(path, part)
        shutil.rmtree(part)


def remove_parts(folder: Path) -> None:
    """Remove what a killed writer left unfinished in ``folder``. Raises `RunDirectoryError`."""
    with disk_errors(folder, "clean"):
        for part in folder.glob(f"*{PART}"):
            shutil.rmtree(part) if part.is_dir() else part.unlink()


def step_folder(parent: Path, step: int) -> Path:
    """Return the folder of a step, ``step_00012``, named so that folders sort by step."""
    return parent / f"step_{step:05d}"


def steps_in(parent: Path) -> list[int]:
    """Return the steps that have a finished folder in ``parent``, in order."""
    names = [path.name for path in parent.glob("step_*")]
    return sorted(int(name[5:]) for name in names if name[5:].isdigit())


def append_line(path: Path, line: str) -> None:
    """Append one line and fsync it, so that a later checkpoint can rely on it. Raises `RunDirectoryError`, and then appends nothing."""
    with disk_errors(path), path.open("ab", buffering=0) as file:
        end, data = file.tell(), line.encode("utf-8") + b"\n"
        try:
            while data:
                data = data[file.write(data) :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)  # or the next line would be one with this half
            raise


def digest(data: bytes) -> str:
    """Compute the SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def check_digest(path: Path, expected: str) -> bytes:
    """Read a file whose SHA-256 is ``expected``. Raises `RunDirectoryError` if it is damaged."""
    with disk_errors(path, "read"):
        data = path.read_bytes()
    if digest(data) != expected:
        raise RunDirectoryError(f"checkpoint file '{path}' is damaged: its SHA-256 is not {expected}. Restore it from a backup.")
    return data


def json_bytes(value: Any) -> bytes:
    """Write readable JSON that keeps the order of keys. Raises ``ValueError`` for NaN and infinities."""
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode("utf-8")


def read_json(path: Path) -> Any:
    """Parse a JSON file. Raises `RunDirectoryError`."""
    with disk_errors(path, "read"):
        data = path.read_bytes()
    try:
        return json.loads(data)
    except ValueError as error:
        raise RunDirectoryError(f"'{path}' is not valid JSON ({error}). Restore it from a backup, or start a new run.") from error


def read_object(path: Path, *keys: str) -> dict[str, Any]:
    """Parse a JSON file of an object with at least these keys. Raises `RunDirectoryError`."""
    content = read_json(path)
    if not isinstance(content, dict) or not content.keys() >= {*keys}:
        expected = f"an object with {', '.join(keys)}"
        raise RunDirectoryError(f"'{path}' is damaged: expected {expected}. Restore it from a backup, or start a new run.")
    return content


def _aside(path: Path) -> Path:
    return path.with_name(path.name + PART)


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
