"""``populora evaluate compare A B …``: evaluations against the first, with intervals and paired tests (`populora.evals.comparison`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from populora.commands.arguments import parse
from populora.errors import ConfigError
from populora.evals.comparison import Arm, compare, read_arm
from populora.evals.comparison_report import comparisons
from populora.evals.filing import write_tables
from populora.evals.folder import read_description
from populora.evals.layout import terminal
from populora.evals.results import HEADLINE


@dataclass(frozen=True)
class Compare:
    """Compare evaluations item by item with the first one: differences, 95 % intervals over items, a paired test for each benchmark.

    An arm is a folder, or some of its sources: `runs/a/evaluations/step_00200:students`, `…:T0,T1`.
    """

    arms: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="FOLDER[:SOURCES]")]
    """The first is what the others are compared with."""
    reading: str = HEADLINE
    """How completions are read: `headline`, `strict`, `lenient` or `fixed`."""
    seed: int = 0
    """Of the resampling: the same seed gives the same numbers."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="DIR")] = None
    """Where `comparison.md`, `.tex` and `.csv` go; without it they are only printed."""


def main(arguments: Sequence[str]) -> int:
    """Print the comparison; returns 0. Raises `PopuloraError`."""
    chosen = parse(Compare, arguments, "evaluate compare")
    differences = compare([_arm(text, chosen.reading) for text in chosen.arms], chosen.seed)
    layouts, console = comparisons(differences), Console(highlight=False)
    for layout in layouts:
        console.print(terminal(layout, console.width))
    if chosen.out:
        chosen.out.mkdir(parents=True, exist_ok=True)
        written = write_tables(chosen.out, "comparison", layouts, differences)
        sys.stderr.write(f"populora evaluate: written to {', '.join(map(str, written))}\n")
    return 0


def _arm(text: str, reading: str) -> Arm:
    path, _, names = text.partition(":") if not Path(text).is_dir() else (text, "", "")
    folder, found = Path(path), read_description(Path(path))
    wanted = [name.strip() for name in names.split(",")] if names else []
    sources = [source for source in found.sources if not wanted or source.name in wanted or f"{source.role}s" in wanted]
    known = {name for source in found.sources for name in (source.name, f"{source.role}s")}
    if unknown := [name for name in wanted if name not in known]:
        raise ConfigError(f"'{folder}' has no source '{unknown[0]}': expected some of {', '.join(sorted(known))}")
    return read_arm(folder, text, sources, {name: data.items for name, data in found.benchmarks.items()}, reading)
