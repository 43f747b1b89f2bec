"""The run directory. A folder is a run as soon as it has a ``config.json``, which holds the resolved settings.

``run.json`` holds the facts around them: versions, sandbox tier, fingerprint of the base, hash of the settings. The process that writes
holds ``lock``.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from populora.core.config import Config
from populora.core.config_file import from_mapping, to_mapping
from populora.core.errors import ConfigError, RunDirectoryError
from populora.core.files import PART, digest, disk_errors, json_bytes, make_folder, read_json, read_object, write_file
from populora.core.installed import run_versions, version_changes, versions
from populora.core.invocation import command

RUNS = Path("runs")
"""Where new runs go, in the working folder."""
CONFIG, FACTS, LOCK = "config.json", "run.json", "lock"
EVALUATIONS = "evaluations"
"""Evaluations of the run's members, a folder for each step."""
PAIRS = "pairs"
"""Solve rates of every student at every teacher's problems, a table for each checkpoint that `populora evaluate pairs` was called at."""
FORMAT = 5
"""Of run directories and checkpoints."""


@contextmanager
def new_run(folder: Path, config: Config, facts: Mapping[str, Any]) -> Iterator[None]:
    """Create the run directory and hold its lock. ``facts`` are plain values for ``run.json``. Raises `RunDirectoryError`."""
    check_free(folder)
    make_folder(folder)
    with locked(folder):
        check_free(folder)
        settings = json_bytes(to_mapping(config))
        about = {"format": FORMAT, "config_sha256": digest(settings), "versions": run_versions(config)}
        write_file(folder / FACTS, json_bytes({**about, **facts}))
        write_file(folder / CONFIG, settings)
        yield


@contextmanager
def open_run(folder: Path) -> Iterator[Config]:
    """Hold the lock of an existing run and yield its settings. Raises `RunDirectoryError`, also if they were edited since."""
    config = read_config(folder)
    with locked(folder):
        facts, settings = read_json(folder / FACTS), read_json(folder / CONFIG)
        if facts.get("config_sha256") != digest(json_bytes({**settings, "steps": facts.get("steps", settings["steps"])})):
            raise RunDirectoryError(
                f"'{folder / CONFIG}' is not the configuration this run began with: restore the file, or start a new run with the new one."
            )
        yield config


def with_more_steps(config: Config, steps: int | None) -> Config:
    """Return the settings of a run that goes on to ``steps``, or to its last step. Raises `ConfigError` for fewer."""
    if steps is not None and steps < config.steps:
        raise ConfigError(f"steps is {steps}: expected at least the {config.steps} of the run. Ctrl-C stops a run earlier.")
    return replace(config, steps=steps or config.steps)


def lengthen_run(folder: Path, steps: int) -> None:
    """Raise the number of steps of an open run. Its ``run.json`` keeps the number that it began with, which the hash is of."""
    facts, settings = read_json(folder / FACTS), read_json(folder / CONFIG)
    write_file(folder / FACTS, json_bytes({**facts, "steps": facts.get("steps", settings["steps"])}))
    write_file(folder / CONFIG, json_bytes({**settings, "steps": steps}))


def check_fingerprints(folder: Path, facts: Mapping[str, str]) -> None:
    """Raise `RunDirectoryError` unless base, prompts and sandbox are those that the run began with."""
    recorded = read_json(folder / FACTS)
    for name, current in facts.items():
        if recorded.get(name) != current:
            raise RunDirectoryError(
                f"'{folder}': expected {name} {recorded.get(name)!r} as when it began, got {current!r}. Restore it, or start a new run."
            )


def record_fingerprints(folder: Path, facts: Mapping[str, str]) -> None:
    """Write the fingerprints of another experiment into its ``run.json``, or check them if the file exists."""
    if (folder / FACTS).exists():
        check_fingerprints(folder, facts)
    else:
        write_file(folder / FACTS, json_bytes({"versions": versions(), **facts}))


def changed_versions(folder: Path) -> list[str]:
    """List the packages that have another version than when the run began, such as ``torch 2.13.0, now 2.14.0``."""
    recorded = read_json(folder / FACTS).get("versions", {})
    return version_changes(recorded, versions([name for name in recorded if name != "python"]))


def changed_computation(folder: Path, computation: Mapping[str, str]) -> list[str]:
    """List what computes otherwise than when the run began, such as ``decoder C (AVX-512), now C (AVX2)``."""
    return version_changes(read_json(folder / FACTS).get("computation", {}), computation)


def read_config(folder: Path) -> Config:
    """Read the resolved settings of a run. Raises `RunDirectoryError` if ``folder`` is none."""
    if not (folder / CONFIG).is_file():
        raise RunDirectoryError(f"'{folder}' is not a run directory: expected a '{CONFIG}' in it. `ls runs/` shows the runs.")
    settings = read_json(folder / CONFIG)
    if not isinstance(settings, dict) or "population" not in settings:
        raise RunDirectoryError(f"'{folder}' is not a run of `populora train`: its '{CONFIG}' has no population. Leave it out.")
    try:
        config = from_mapping(settings)
    except ConfigError as error:
        raise _other_version(folder, str(error).partition(". ")[0]) from error
    if (folder / FACTS).is_file() and (written := read_object(folder / FACTS, "config_sha256", "versions").get("format")) != FORMAT:
        raise _other_version(folder, f"expected format {FORMAT}, got {written}")
    return config


def _other_version(folder: Path, reason: str) -> RunDirectoryError:
    return RunDirectoryError(
        f"'{folder}' was written by another version of populora ({reason}). Read it with that version, or start a new run."
    )


def check_free(folder: Path) -> None:
    """Raise `RunDirectoryError` unless a new run may begin in ``folder``; writes nothing."""
    if folder.exists() and not folder.is_dir():
        raise RunDirectoryError(f"'{folder}' is a file: expected a folder or a path that does not exist yet (`--out DIR`).")
    if (folder / CONFIG).is_file():
        raise RunDirectoryError(
            f"'{folder}' already holds a run: `{command('resume', folder)}` continues it, another `--out DIR` begins a new one."
        )
    above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not os.access(above, os.W_OK):
        raise RunDirectoryError(f"'{above}' cannot be written: choose another folder for the run (`--out DIR`).")
    with disk_errors(folder, "read"):
        names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    if foreign := [name for name in names if name not in (FACTS, LOCK) and not name.endswith(PART)]:
        raise RunDirectoryError(f"'{folder}' is not empty, it holds '{foreign[0]}': choose an empty folder (`--out DIR`).")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the directory for one writing process, until it ends. Raises `RunDirectoryError` with the holder's process id."""
    with disk_errors(folder / LOCK, "lock"):
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise RunDirectoryError(
                f"'{folder}' is in use by process {holder}. Wait for it, or stop it there with Ctrl-C, which loses nothing; "
                "`--out DIR` takes another folder."
            ) from error
        with disk_errors(folder / LOCK, "lock"):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode("ascii"), 0)
        yield
    finally:
        os.close(descriptor)


def free_folder(root: Path, name: str) -> Path:
    """Return ``root/name``, or the first of ``root/name-2``, ``-3``, … that does not exist. Creates nothing."""
    candidate, number = root / name, 2
    while os.path.lexists(candidate):  # also a link to nowhere
        candidate, number = root / f"{name}-{number}", number + 1
    return candidate


@contextmanager
def reserved_folder(root: Path, name: str) -> Iterator[Path]:
    """Make the `free_folder`, so that a run that starts meanwhile takes another one. It goes again if nothing was written to it."""
    while True:
        folder = free_folder(root, name)
        make_folder(root)
        with disk_errors(folder, "write"), suppress(FileExistsError):
            folder.mkdir()
            break
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()
