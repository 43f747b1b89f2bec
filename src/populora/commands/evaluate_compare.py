"""``populora evaluate compare A B …``: evaluations against the first, with intervals and paired tests (`populora.evals.comparison`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from populora.commands.arguments import QUIET, parse
from populora.errors import ConfigError
from populora.evals.comparison import Arm, compare, read_arm
from populora.evals.comparison_report import comparisons
from populora.evals.filing import write_tables
from populora.evals.folder import Description, evaluation_of, read_description
from populora.evals.layout import terminal
from populora.evals.results import HEADLINE, Source, readings_of
from populora.runlog.files import disk_errors


@dataclass(frozen=True)
class Compare:
    """Compare evaluations item by item with the first one: differences, 95 % intervals over items, a paired test for each benchmark.

    An arm is a folder, or some of its sources: `runs/a/evaluations/step_00200:students`, `…:T0,T1`.
    """

    arms: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="FOLDER[:SOURCES] ..."), QUIET] = ()
    """The first is what the others are compared with."""
    reading: Annotated[str, tyro.conf.arg(metavar="NAME")] = HEADLINE
    """How completions are read: `headline` (each benchmark's own), `strict`, `lenient` or, for Minerva, `fixed`."""
    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Of the resampling: the same seed gives the same numbers."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="DIR"), QUIET] = None
    """Where `comparison.md`, `.tex` and `.csv` go; without it they are only printed."""


def main(arguments: Sequence[str]) -> int:
    """Print the comparison; returns 0. Raises `PopuloraError`."""
    chosen = parse(Compare, arguments, "evaluate compare")
    if len(chosen.arms) < 2:
        raise ConfigError("expected two or more evaluations, or parts of one, such as FOLDER:students FOLDER:base")
    differences = compare([_arm(text, chosen.reading) for text in chosen.arms], chosen.seed)
    layouts, console = comparisons(differences), Console(highlight=False)
    for layout in layouts:
        console.print(terminal(layout, console.width))
    if chosen.out:
        with disk_errors(chosen.out, "create"):
            chosen.out.mkdir(parents=True, exist_ok=True)
        written = write_tables(chosen.out, "comparison", layouts, differences)
        sys.stderr.write(f"populora evaluate: written to {', '.join(map(str, written))}\n")
    return 0


def _arm(text: str, reading: str) -> Arm:
    path, _, names = text.rpartition(":") if ":" in text and not Path(text).is_dir() else (text, "", "")
    folder, found = Path(path), read_description(Path(path))
    known = (HEADLINE, *readings_of([evaluation_of(folder)]))
    if reading not in known:
        raise ConfigError(f"'{folder}' has no reading '{reading}': expected one of {', '.join(known)}")
    return read_arm(folder, text, _chosen(found, names, folder), {name: data.items for name, data in found.benchmarks.items()}, reading)


def _chosen(found: Description, names: str, folder: Path) -> list[Source]:
    """The sources that are named, by themselves or by their role in the plural; all without names."""
    wanted = [name.strip() for name in names.split(",")] if names else []
    known = dict.fromkeys(name for source in found.sources for name in (source.name, f"{source.role}s"))
    if unknown := [name for name in wanted if name not in known]:
        raise ConfigError(f"'{folder}' has no source '{unknown[0]}': expected some of {', '.join(known)}")
    return [source for source in found.sources if not wanted or source.name in wanted or f"{source.role}s" in wanted]
