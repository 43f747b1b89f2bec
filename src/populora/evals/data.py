"""The benchmarks' data files: from a folder, or from the public Git trees that published them.

A file is accepted only with the pinned SHA-256. The Hugging Face hub's editions of HumanEval+ and MBPP+ lack inputs that evalplus needs.
"""

import gzip
import hashlib
import json
import os
import zlib
from collections import Counter
from http.client import HTTPException
from importlib.resources import files
from pathlib import Path
from urllib.request import urlopen

from populora.core.config import EMBEDDED
from populora.core.errors import ConfigError, PopuloraError, RunDirectoryError
from populora.core.files import digest, disk_errors, make_folder, user_cache, write_file
from populora.core.types import TaskType
from populora.evals.benchmarks import FIELDS, Benchmark
from populora.evals.eval_records import Item
from populora.evals.graders.livecodebench import load_livecodebench, official_files
from populora.evals.sql_suite import is_sql_suite, load_sql_suite, suite_files


class MissingDataError(PopuloraError):
    """A benchmark's data cannot be obtained: it is skipped."""


def find_data(benchmark: Benchmark, data: str = "") -> Path:
    """Find the benchmark's file or folder in ``data``, or download it if that is empty. Raises `MissingDataError`, `ConfigError`."""
    if benchmark.grading == "selfplay":
        return Path(str(files("populora.engine.model").joinpath(EMBEDDED[benchmark.name], benchmark.file)))
    if not data:
        return _download(benchmark)
    path = Path(data) / benchmark.file
    if not path.parent.is_dir():
        raise ConfigError(f"--data is '{data}': expected a folder with the benchmarks' files")
    if not path.exists():
        raise MissingDataError(f"{benchmark.name}: '{path}' is not there")
    return path


def load_items(benchmark: Benchmark, path: Path, verify: bool = True) -> list[Item]:
    """Load all items of a data file. Raises `ConfigError` for one that is not the pinned file (if ``verify``), and for faulty items."""
    loader = {"livecodebench": load_livecodebench, "execution": load_sql_suite}.get(benchmark.grading)
    items = loader(path) if loader else _read_lines(benchmark, path, verify)
    if benchmark.domain:
        items = [item for item in items if TaskType(item.fields["task"]).domain == benchmark.domain]
    if repeated := [name for name, count in Counter(item.id for item in items).items() if count > 1]:
        raise ConfigError(f"'{path}' has item '{repeated[0]}' more than once: expected the file or the files of one release")
    if verify and benchmark.items and len(items) != benchmark.items:
        raise ConfigError(f"'{path}' has {len(items)} items: expected the {benchmark.items} of {benchmark.name} in the paper")
    return items


def _read_lines(benchmark: Benchmark, path: Path, verify: bool) -> list[Item]:
    with disk_errors(path, "read"):
        content = path.read_bytes()
    if verify and benchmark.sha256 and (sha256 := digest(content)) != benchmark.sha256:
        fault = f"'{path}' is not the pinned {benchmark.name}: expected SHA-256 {benchmark.sha256}, got {sha256}"
        raise ConfigError(f"{fault}. Take {benchmark.source or 'that of the package'}, since figures on other data cannot be compared.")
    try:
        rows = [json.loads(line) for line in content.splitlines() if line.strip()]
        lacking = [name for name in FIELDS.get(benchmark.grading, ()) if any(name not in row for row in rows)]
        items = [Item(str(row.get(benchmark.id_field, index)), row) for index, row in enumerate(rows)]
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"'{path}': expected an item of {benchmark.name} as a JSON object on each line ({error})") from error
    if lacking:
        raise ConfigError(f"'{path}' is not {benchmark.name}: expected its own file, but an item has no field '{lacking[0]}'")
    return items


def load_pinned(benchmark: Benchmark, path: Path) -> list[Item]:
    """Load as `load_items`, but raise `MissingDataError` for everything that is wrong with the file."""
    try:
        return load_items(benchmark, path)
    except (ConfigError, RunDirectoryError) as error:
        raise MissingDataError(f"{benchmark.name}: {error}") from error


def digest_of(path: Path) -> str:
    """Compute the SHA-256 of a data file; for a folder, of its files' names and digests. Raises `RunDirectoryError`."""
    if path.is_dir():
        parts = suite_files(path) if is_sql_suite(path) else official_files(path)
        return digest("".join(sorted(f"{digest_of(file)}  {file.name}\n" for file in parts)).encode())
    with disk_errors(path, "read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(benchmark: Benchmark) -> Path:
    """Return the file in the user's cache, downloaded if absent from its Git tree, or the mirror that ``POPULORA_RAW_FILES`` names."""
    if not benchmark.source:
        raise MissingDataError(f"{benchmark.name}: only from a folder of yours (--data DIR with '{benchmark.file}' in it)")
    path = user_cache() / "benchmarks" / benchmark.file
    if path.exists():
        return path
    server = os.environ.get("POPULORA_RAW_FILES", "https://raw.githubusercontent.com").rstrip("/")
    url = f"{server}/{benchmark.source.replace('@', '/').replace(':', '/')}"
    try:
        with urlopen(url, timeout=60) as answer:  # noqa: S310 - a fixed https address
            content = gzip.decompress(answer.read()) if url.endswith(".gz") else answer.read()
    except (HTTPException, OSError, EOFError, zlib.error) as error:
        reason = f"cannot be downloaded ({type(error).__name__}: {error})"
        raise MissingDataError(f"{benchmark.name}: '{url}' {reason}: try again; with the file at hand, use --data DIR") from error
    if digest(content) != benchmark.sha256:
        raise MissingDataError(f"{benchmark.name}: the download has SHA-256 {digest(content)}, expected {benchmark.sha256}")
    make_folder(path.parent)
    write_file(path, content)
    return path
