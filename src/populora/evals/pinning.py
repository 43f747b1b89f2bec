"""The adapters that an evaluation was begun with, kept in its folder.

Those of a run that goes on change under an evaluation of it. They are copied out of one of its checkpoints before anything is sampled, and
when the evaluation is taken up again, the copies are what is sampled from. They are known by their bytes; where they came from is only
noted, for folders are moved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from populora.adapters.peft_format import WEIGHTS_FILE
from populora.adapters.peft_settings import CONFIG_FILE
from populora.core.errors import ConfigError
from populora.core.files import disk_errors, remove_folder, write_folder
from populora.evals.generation_file import agree, read_generation, record
from populora.evals.sources import ADAPTERS, Source, Sources
from populora.runs.checkpoint import SavedMembers, newest_members
from populora.runs.directory import config_hash, read_config

Files = dict[str, bytes]
Facts = dict[str, Any]


@dataclass(frozen=True)
class _New:
    """Sources of one run, or of none, that are copied together."""

    run: Path | None
    sources: Sequence[Source]


def unpinned(sources: Sources, out: Path) -> list[Source]:
    """The sources whose adapters ``out`` does not have yet."""
    known = read_generation(out).get("sources", {})
    return [source for source in sources.each if source.adapter and source.name not in known]


def pin(sources: Sources, out: Path, checkpoint: SavedMembers | None = None) -> Sources:
    """The sources with their adapters as they were when the evaluation in ``out`` began; what is new is copied there.

    New members of a run are copied at one step, which is written down, too: that of ``checkpoint``, else of the newest.
    Raises `ConfigError` for another adapter or run of the same name than before and for members of another
    step, and `RunDirectoryError` where a run has no checkpoint.
    """
    new = unpinned(sources, out)
    if new:
        record(out, {"sources": {}})  # from here on it is an evaluation's folder, whatever a kill leaves in it
    for run in dict.fromkeys(source.run for source in new):
        _copy(_New(run, [source for source in new if source.run == run]), out, checkpoint)
    return replace(sources, each=tuple(_pinned(source, out) for source in sources.each))


def _copy(new: _New, out: Path, checkpoint: SavedMembers | None) -> None:
    """All folders are copied first and written down last, together: copies that a kill left unrecorded are made again."""
    write, facts = _of_run(new, out, checkpoint) if new.run else (_of_folder, {})
    found: dict[str, Any] = {}
    for source in new.sources:
        kept = out / ADAPTERS / source.name
        if source.adapter and kept.resolve() == source.adapter.resolve():
            raise ConfigError(f"'{source.adapter}' is where the evaluation in '{out}' keeps its copy: choose another --out")
        if kept.exists():
            remove_folder(kept)
        write(source, kept)
        found[source.name] = {**_described(source), "sha256": _sha256(_files(kept)), **facts}
    record(out, {"sources": found})


def _of_folder(source: Source, kept: Path) -> None:
    write_folder(kept, _files(source.adapter or Path()))


def _of_run(new: _New, out: Path, checkpoint: SavedMembers | None) -> tuple[Callable[[Source, Path], None], Facts]:
    """What writes a member of a run, and the facts about all of them."""
    run = new.run or Path()
    taken = checkpoint or newest_members(run)
    facts: Facts = {"run": config_hash(read_config(run)), "step": taken.step}
    _check_step(run, taken.step, facts["run"], out)

    def write(source: Source, kept: Path) -> None:
        write_folder(kept, taken.files(source.name))

    return write, facts


def _check_step(run: Path, step: int, identity: str, out: Path) -> None:
    for name, known in read_generation(out).get("sources", {}).items():
        if known.get("run") == identity and known["step"] != step:
            raise ConfigError(
                f"'{out}' has '{name}' at step {known['step']} of its run, and '{run}' is at step {step} now: one mean would mix the two. "
                "Evaluate the members that it has, or all of them into a new folder (--out)."
            )


def _pinned(source: Source, out: Path) -> Source:
    if source.adapter is None:
        record(out, {"sources": {source.name: {"role": source.role}}})
        return source
    run = {"run": config_hash(read_config(source.run))} if source.run else {}
    agree(out, {"sources": {source.name: {"role": source.role, **run}}})
    kept = replace(source, adapter=out / ADAPTERS / source.name)
    for one in (kept,) if source.run else (kept, source):  # a run goes on
        if _sha256(_files(one.adapter or Path())) != read_generation(out)["sources"][source.name]["sha256"]:
            raise ConfigError(f"'{one.adapter}' is not the adapter that '{out}' was begun with: restore it, or use another folder")
    return kept


def _described(source: Source) -> dict[str, str]:
    return {"role": source.role, "from": str((source.run or source.adapter or Path()).resolve())}


def _files(adapter: Path) -> Files:
    with disk_errors(adapter, "read"):
        return {name: (adapter / name).read_bytes() for name in (CONFIG_FILE, WEIGHTS_FILE)}


def _sha256(files: Files) -> str:
    return hashlib.sha256(b"".join(files[name] for name in sorted(files))).hexdigest()
