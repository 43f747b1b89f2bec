"""The benchmarks' data files: from a folder, or from the public Git trees that published them.

A file is accepted only with the pinned SHA-256, on which all figures of this project were measured. The Hugging Face hub's editions of
these benchmarks are other files: HumanEval+ and MBPP+ there lack the inputs that evalplus needs.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Sequence
from http.client import HTTPException
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from populora.core.errors import ConfigError, PopuloraError, RunDirectoryError
from populora.core.files import disk_errors, write_file
from populora.evals.benchmarks import FIELDS, Benchmark
from populora.evals.graders.livecodebench import load_livecodebench, official_files
from populora.evals.records import Item

_SECONDS = 60


class MissingDataError(PopuloraError):
    """A benchmark's data cannot be obtained: it is skipped."""


def find_data(benchmark: Benchmark, data: str = "") -> Path:
    """Find the benchmark's file, or folder for LiveCodeBench, in the folder ``data``, or download it if that is empty.

    Raises `MissingDataError`, and `ConfigError` where ``data`` is not a folder.
    """
    if benchmark.grading == "selfplay":
        return Path(str(files("populora.engine.model").joinpath("tiny_base", benchmark.file)))
    if data:
        return _from_folder(benchmark, Path(data))
    return _cached(benchmark)


def load_items(benchmark: Benchmark, path: Path, verify: bool = True) -> list[Item]:
    """Load all items of a data file. Raises `ConfigError` for one that is not the pinned file (if ``verify``), and for faulty items."""
    if benchmark.grading == "livecodebench":
        return load_livecodebench(path)
    with disk_errors(path, "read"):
        content = path.read_bytes()
    if verify and benchmark.sha256 and (found := digest(content)) != benchmark.sha256:
        raise ConfigError(
            f"'{path}' is not the pinned {benchmark.name}: expected SHA-256 {benchmark.sha256}, got {found}. Figures on other data cannot "
            f"be compared; the file is {benchmark.source or 'part of the package'}."
        )
    rows = [_row(path, number, line) for number, line in enumerate(content.splitlines(), 1) if line.strip()]
    for number, row in enumerate(rows, 1):
        if lacking := [name for name in FIELDS[benchmark.grading] if name not in row]:
            raise ConfigError(
                f"'{path}', item {number}: no item of {benchmark.name}, it has no field '{lacking[0]}': expected its own file"
            )
    items = [Item(str(row.get(benchmark.id_field, index)), row) for index, row in enumerate(rows)]
    _check_distinct(path, [item.id for item in items])
    return items


def load_pinned(benchmark: Benchmark, path: Path) -> list[Item]:
    """Load as `load_items`, but raise `MissingDataError` for everything that is wrong with the file."""
    try:
        return load_items(benchmark, path)
    except (ConfigError, RunDirectoryError) as error:
        raise MissingDataError(f"{benchmark.name}: {error}") from error


def digest(content: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def digest_of(path: Path) -> str:
    """SHA-256 of a data file; for LiveCodeBench, of the names and digests of its files. Raises `RunDirectoryError`."""
    with disk_errors(path, "read"):
        if path.is_dir():
            lines = [f"{_file_digest(file)}  {file.name}\n" for file in official_files(path)]
            return digest("".join(sorted(lines)).encode())
        return _file_digest(path)


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _row(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"'{path}', line {number}: expected an item as a JSON object ({error})") from error
    if not isinstance(row, dict):
        raise ConfigError(f"'{path}', line {number}: expected an item as a JSON object, got a {type(row).__name__}")
    return row


def _check_distinct(path: Path, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"'{path}' has item '{twice}' more than once")


def _from_folder(benchmark: Benchmark, folder: Path) -> Path:
    if not folder.is_dir():
        raise ConfigError(f"--data is '{folder}': expected a folder with the benchmarks' files")
    path = folder / benchmark.file
    if not path.exists():
        raise MissingDataError(f"{benchmark.name}: '{path}' is not there")
    return path


def _cached(benchmark: Benchmark) -> Path:
    """Return the file in the user's cache, downloaded from its public Git tree if it is not there yet."""
    if not benchmark.source:
        raise MissingDataError(f"{benchmark.name}: only from a folder of yours (--data DIR with '{benchmark.file}' in it)")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "populora" / "benchmarks"
    path = cache / benchmark.file
    if not path.exists():
        content = _download(benchmark)
        if digest(content) != benchmark.sha256:
            raise MissingDataError(f"{benchmark.name}: what was downloaded has SHA-256 {digest(content)}, expected {benchmark.sha256}")
        with disk_errors(cache, "create"):
            cache.mkdir(parents=True, exist_ok=True)
        write_file(path, content)
    return path


def _download(benchmark: Benchmark) -> bytes:
    tree, _, path = benchmark.source.partition(":")
    url = f"{_raw_files()}/{tree.replace('@', '/')}/{path}"
    try:
        with urlopen(url, timeout=_SECONDS) as answer:  # noqa: S310 - a fixed https address
            content = answer.read()
    except (HTTPException, OSError) as error:
        why = f"cannot be reached ({type(error).__name__}: {error})"
        raise MissingDataError(f"{benchmark.name}: '{url}' {why}; with the file at hand, use --data DIR") from error
    try:
        return gzip.decompress(content) if path.endswith(".gz") else content
    except (OSError, EOFError, zlib.error) as error:
        why = f"came damaged ({type(error).__name__}: {error})"
        raise MissingDataError(f"{benchmark.name}: '{url}' {why}: try again; with the file at hand, use --data DIR") from error


def _raw_files() -> str:
    """The server of public Git trees' files, or a mirror of it."""
    return os.environ.get("POPULORA_RAW_FILES", "https://raw.githubusercontent.com").rstrip("/")
