"""What an evaluation was begun with, kept in its folder: copies of the adapters, and ``generation.json`` with the settings.

The adapters of a run that goes on change under an evaluation of it. They are copied at one of its checkpoints before anything is sampled,
and when the evaluation is taken up again, the copies are what is sampled from. Settings that would mix two kinds of completions in one file
are refused.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from populora.config import Config
from populora.errors import ConfigError, RunDirectoryError
from populora.evals.sources import ADAPTERS, Source, Sources
from populora.lora.peft_format import WEIGHTS_FILE
from populora.lora.peft_settings import CONFIG_FILE
from populora.runlog.checkpoint import checkpoint_steps
from populora.runlog.directory import read_config
from populora.runlog.files import disk_errors, json_bytes, read_json, remove_folder, write_file, write_folder
from populora.runlog.journal import read_log

GENERATION = "generation.json"
PATIENCE = 30.0
"""Seconds to wait for a run that is writing its adapters."""
Files = dict[str, bytes]


def pin(sources: Sources, out: Path) -> Sources:
    """The sources with their adapters as they were when the evaluation in ``out`` began; what is new is copied there.

    New members of a run are copied at one step, which is written down, too. Raises `ConfigError` for another base or another adapter of
    the same name than before, and `RunDirectoryError` where a run's adapters cannot be had as they were at one step.
    """
    base, known = sources.config.base, _read(out).get("sources", {})
    record(out, {"base": {"path": base.path, "dtype": base.dtype, "prompts": base.prompts}})
    new = [source for source in sources.each if source.adapter and source.name not in known]
    for run in dict.fromkeys(source.run for source in new):
        _copy([source for source in new if source.run == run], run, out)
    return replace(sources, each=tuple(_pinned(source, out) for source in sources.each))


def steps(out: Path) -> dict[str, int]:
    """The run's step, by source, that the adapters in ``out`` are of."""
    return {name: known["step"] for name, known in _read(out).get("sources", {}).items() if "step" in known}


def record(out: Path, values: Mapping[str, Any]) -> None:
    """Add to what ``out`` was begun with, by name and below it. Raises `ConfigError` for what differs from what is there."""
    known = _read(out)
    merged = _merged(out, known, values)
    if merged != known:
        write_file(out / GENERATION, json_bytes(merged))


def _read(out: Path) -> dict[str, Any]:
    return read_json(out / GENERATION) if (out / GENERATION).exists() else {}


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


def _copy(sources: Sequence[Source], run: Path | None, out: Path) -> None:
    """Each folder is copied first and written down last: a copy that a kill left unrecorded is made again."""
    copies, step = _of_one_step(sources, run) if run else ([_files(source) for source in sources], {})
    for source, files in zip(sources, copies, strict=True):
        kept = out / ADAPTERS / source.name
        if kept.exists():
            remove_folder(kept)
        write_folder(kept, files)
        record(out, {"sources": {source.name: {**_described(source), "sha256": _sha256(files), **step}}})


def _pinned(source: Source, out: Path) -> Source:
    record(out, {"sources": {source.name: _described(source)}})
    if source.adapter is None:
        return source
    kept = replace(source, adapter=out / ADAPTERS / source.name)
    for one in (kept,) if source.run else (kept, source):  # a run goes on
        if _sha256(_files(one)) != _read(out)["sources"][source.name]["sha256"]:
            raise ConfigError(f"'{one.adapter}' is not the adapter that '{out}' was begun with: restore it, or use another folder")
    return kept


def _described(source: Source) -> dict[str, str]:
    return {"role": source.role} | ({"from": str(source.adapter.resolve())} if source.adapter else {})


def _of_one_step(members: Sequence[Source], run: Path) -> tuple[list[Files], dict[str, int]]:
    """The files of a run's members, and the step that all are of."""
    config, deadline = read_config(run), time.monotonic() + PATIENCE
    while True:
        before = _settled(run, config)
        copies = [_files(member) for member in members] if before is not None else []
        if before is not None and before == _settled(run, config):
            return copies, {"step": before}
        if time.monotonic() > deadline:
            raise RunDirectoryError(
                f"'{run}' has been writing its adapters for {PATIENCE:.0f} s, so they are not of one step. If nothing is running there, a "
                f"kill came in between: `populora resume {run}` puts them right. Else try again."
            )
        time.sleep(0.1)


def _settled(run: Path, config: Config) -> int | None:
    """The step of the newest checkpoint; nothing while the next is due, whose adapters are written first."""
    newest = max(checkpoint_steps(run), default=None)
    logged = max((int(line["step"]) for line in read_log(run)), default=0)
    if newest is None or any(step % config.checkpoint_every == 0 or step == config.steps for step in range(newest + 1, logged + 1)):
        return None
    return newest


def _files(source: Source) -> Files:
    adapter = source.adapter or Path()
    with disk_errors(adapter, "read"):
        return {name: (adapter / name).read_bytes() for name in (CONFIG_FILE, WEIGHTS_FILE)}


def _sha256(files: Files) -> str:
    return hashlib.sha256(b"".join(files[name] for name in sorted(files))).hexdigest()
