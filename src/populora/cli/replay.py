"""``populora replay PATH``: breed children again from their records and their parents, and compare every byte.

PATH is a folder that ``populora breed`` wrote, or a run, whose steps keep the parents of their children.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from populora.cli.arguments import parse
from populora.cli.loading import load_torch
from populora.core.errors import AdapterError, ConfigError, RunDirectoryError
from populora.core.files import step_folder
from populora.core.installed import BREEDING, version_changes, versions
from populora.runs.directory import CONFIG, changed_versions, read_config
from populora.runs.parents import read_parents
from populora.runs.records import FOLDER, read_children
from populora.runs.style import birth

if TYPE_CHECKING:
    from populora.adapters.adapter import Factors

    Modules = dict[str, Factors]


@dataclass(frozen=True)
class Replay:
    """Breed a child again, or all children of a run, and say whether it is equal to the byte. Exits with 1 where one is not."""

    path: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="PATH")]
    """Folder that `populora breed` wrote, or run directory."""
    parents: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="A [B]")] = ()
    """Where a folder's parents are now, if they were moved."""
    member: Annotated[str | None, tyro.conf.arg(metavar="MEMBER")] = None
    """Only the children that took this place in the run, such as `S3`."""


def main(arguments: Sequence[str]) -> int:
    """Print what is equal and what differs; returns 0, or 1 if anything differs. Raises `PopuloraError`."""
    chosen = parse(Replay, arguments, "replay")
    console = Console(highlight=False)
    load_torch()
    if (chosen.path / CONFIG).is_file():
        if chosen.parents:
            raise ConfigError("--parents are of a bred folder: a run keeps its own")
        return _replay_run(chosen.path, chosen.member, console)
    if chosen.member is not None:
        raise ConfigError(f"--member selects from a run, but '{chosen.path}' is none: expected a '{CONFIG}' in it")
    return _replay_folder(chosen.path, chosen.parents, console)


def _replay_folder(folder: Path, moved: Sequence[Path], console: Console) -> int:
    from populora.adapters.operators.lineage import read_lineage, rebred
    from populora.adapters.peft_format import WEIGHTS_FILE, read_folder, weights_bytes
    from populora.adapters.peft_settings import CONFIG_FILE

    child = read_folder(folder)
    lineage, recorded = read_lineage(folder)
    if lineage is None:
        raise AdapterError(
            f"'{folder}' has no lineage.json: only what `populora breed` wrote can be bred again (members of a run: `populora replay RUN`)"
        )
    paths = list(moved) or [folder / name for name in lineage.parent_names]
    for path in paths:
        if not path.is_dir():
            raise AdapterError(f"the parent '{path}' of '{folder}' is not there: say where it is now (`--parents A [B]`)")
    parents = [read_folder(path) for path in paths]
    again, differing = rebred(lineage, [(str(path), parent.adapter) for path, parent in zip(paths, parents, strict=True)])
    if weights_bytes(again) != (folder / WEIGHTS_FILE).read_bytes():
        differing.append(f"{WEIGHTS_FILE}: {_distance(again.modules, child.adapter.modules)}")
    if child.text != parents[0].text:
        differing.append(f"{CONFIG_FILE}: not the file of '{paths[0]}'")
    _say_changed(version_changes(recorded, versions(BREEDING)) if differing else [])
    console.print(Text.assemble((f"{folder}", "bold"), f"  {birth(lineage)}  ", _verdict(differing)))
    return 1 if differing else 0


def _replay_run(folder: Path, member: str | None, console: Console) -> int:
    from populora.adapters.operators.lineage import rebred

    read_config(folder)
    children = read_children(folder)
    if member is not None and member not in (known := sorted({child.member for child in children})):
        raise ConfigError(f"--member is '{member}': expected one of {', '.join(known) or 'none'}, who were bred in this run")
    chosen = [child for child in children if member in (None, child.member)]
    if not chosen:
        console.print(Text(f"{folder}: no child was born in this run"))
        return 0
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for caption in ("step", "child", "bred", ""):
        table.add_column(caption, justify="right" if caption == "step" else "left")
    failed = 0
    for step in sorted({child.born for child in chosen}):
        kept = read_parents(step_folder(folder / FOLDER, step))
        for child in (child for child in chosen if child.born == step):
            if lost := [name for name in child.parent_names if name not in kept]:
                raise RunDirectoryError(
                    f"step {step} of '{folder}' does not hold the parent '{lost[0]}' of '{child.name}': restore it from a backup"
                )
            _, differing = rebred(child, [(name, kept[name]) for name in child.parent_names])
            table.add_row(str(step), child.name, Text(birth(child)), _verdict(differing))
            failed += bool(differing)
    _say_changed(changed_versions(folder) if failed else [])
    console.print(table)
    console.print(f"{len(chosen) - failed} of {len(chosen)} equal to the byte")
    return 1 if failed else 0


def _verdict(differing: Sequence[str]) -> Text:
    return Text("; ".join(("differs", *differing)), "red") if differing else Text("equal to the byte", "green")


def _distance(one: Modules, two: Modules) -> str:
    if one.keys() != two.keys():
        return "other modules"
    gaps = [float((x - y).abs().max()) for name in one for x, y in zip(one[name], two[name], strict=True) if x.shape == y.shape]
    if len(gaps) < 2 * len(one):
        return "other shapes"
    count = sum(gap > 0 for gap in gaps)
    return f"{count} of {len(gaps)} tensors differ, by {max(gaps):.3g} at most" if count else "equal numbers in other bytes"


def _say_changed(changed: Sequence[str]) -> None:
    for change in changed:
        sys.stderr.write(f"populora: {change}: other versions may breed other bytes\n")
