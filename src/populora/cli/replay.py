"""``populora replay PATH``: breed children again from their records and their parents, and compare them bit by bit.

PATH is a folder that ``populora breed`` wrote, or a run, whose steps keep the parents of their children.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich import box
from rich.table import Column, Table
from rich.text import Text

from populora.cli.arguments import parse
from populora.core.errors import AdapterError, ConfigError
from populora.core.files import step_folder
from populora.core.installed import BREEDING, version_changes, versions
from populora.core.output import OutputConsole
from populora.core.types import Lineage
from populora.runs.directory import CONFIG, changed_versions, read_config
from populora.runs.style import describe_child
from populora.runs.tables import FOLDER, read_children, read_parents


@dataclass(frozen=True)
class Replay:
    """Breed a child again, or all children of a run, and say whether it is bit-identical. Exits with 1 if one is not."""

    path: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="PATH")]
    """Folder that `populora breed` wrote, or run directory."""
    parents: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="A [B ...]")] = ()
    """Where a folder's parents are now, if they were moved."""
    member: Annotated[str | None, tyro.conf.arg(metavar="MEMBER")] = None
    """Only the children that took this place in the run, such as `S3`."""


def main(arguments: Sequence[str]) -> int:
    """Print the children that are bit-identical and those that differ; returns 0, or 1 if any differs. Raises `PopuloraError`."""
    args = parse(Replay, arguments, "replay")
    table = Table(Column("step", justify="right"), "child", "bred", "", box=box.SIMPLE_HEAD, pad_edge=False)
    if (args.path / CONFIG).is_file():
        if args.parents:
            raise ConfigError("--parents are of a bred folder: a run keeps its own")
        results = list(_replay_run(args.path, args.member))
        changes = changed_versions(args.path)
    else:
        if args.member is not None:
            raise ConfigError(f"--member selects from a run, but '{args.path}' is none: expected a '{CONFIG}' in it")
        lineage, differing, recorded = _replay_folder(args.path, args.parents)
        results, changes = [(lineage, differing)], version_changes(recorded, versions(BREEDING))
    for lineage, differing in results:
        verdict = Text("; ".join(("differs", *differing)), "red") if differing else Text("bit-identical", "green")
        table.add_row(str(lineage.born), lineage.name, Text(describe_child(lineage)), verdict)
    failed = sum(bool(differing) for _, differing in results)
    for change in changes if failed else []:
        sys.stderr.write(f"populora: {change}: other versions may breed other bytes\n")
    console = OutputConsole()
    console.print(table if results else Text(f"{args.path}: no child was born in this run"))
    console.print(f"{len(results) - failed} of {len(results)} bit-identical")
    return 1 if failed else 0


def _replay_folder(folder: Path, moved: Sequence[Path]) -> tuple[Lineage, list[str], dict[str, str]]:
    """Breed a folder's child again; return its record, the differences, and the recorded versions."""
    from populora.adapters.operators.breeding import breed_again, read_lineage
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
    rebred, differing = breed_again(lineage, [(str(path), parent.adapter) for path, parent in zip(paths, parents, strict=True)])
    if weights_bytes(rebred) != (folder / WEIGHTS_FILE).read_bytes():
        differing.append(f"{WEIGHTS_FILE}: other bytes")
    if child.text != parents[0].text:
        differing.append(f"{CONFIG_FILE}: not the file of '{paths[0]}'")
    return lineage, differing, recorded


def _replay_run(folder: Path, member: str | None) -> Iterator[tuple[Lineage, list[str]]]:
    """Breed a run's children again, step by step; yield their records and the differences."""
    from populora.adapters.operators.breeding import breed_again

    read_config(folder)
    children = read_children(folder)
    if member is not None and member not in (places := sorted({child.member for child in children})):
        raise ConfigError(f"--member is '{member}': expected one of {', '.join(places) or 'none'}, who were bred in this run")
    for step in sorted({child.born for child in children if member in (None, child.member)}):
        parents = read_parents(step_folder(folder / FOLDER, step))
        for child in (child for child in children if child.born == step and member in (None, child.member)):
            yield child, breed_again(child, [(name, parents[name]) for name in child.parent_names])[1]
