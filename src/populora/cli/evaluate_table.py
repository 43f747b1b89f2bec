"""``populora evaluate table FOLDER…``: the downstream table of one or more evaluations; printed, and as Markdown, LaTeX and CSV."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from populora.cli.arguments import QUIET, parse
from populora.core.errors import ConfigError
from populora.core.files import disk_errors
from populora.evals.breakdown import breakdown
from populora.evals.conditions import conditions, differences
from populora.evals.filing import write_tables
from populora.evals.folder import evaluation_of, read_description
from populora.evals.layout import terminal
from populora.evals.report import records, tables
from populora.evals.results import Evaluation

NAME = "downstream"


@dataclass(frozen=True)
class Table:
    """Print the downstream table of evaluations, as the paper's: members, mean and spread by role, worst and best."""

    folders: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FOLDER ..."), QUIET] = ()
    """Folders that `populora evaluate` wrote."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="DIR"), QUIET] = None
    """Where `downstream.md`, `.tex` and `.csv` go; by default into the first folder."""
    published: tyro.conf.FlagCreatePairsOff[Annotated[bool, QUIET]] = False
    """Lay the paper's table under ours."""


def main(arguments: Sequence[str]) -> int:
    """Print the table; returns 0. Raises `PopuloraError`."""
    chosen = parse(Table, arguments, "evaluate table")
    if not chosen.folders:
        raise ConfigError("expected the folder of an evaluation, such as runs/tiny/evaluations/step_00060")
    tabulate(chosen.folders, chosen.out or chosen.folders[0], chosen.published)
    return 0


def tabulate(folders: Sequence[Path], out: Path, published: bool) -> None:
    """Print the table of evaluations, and write its files into ``out``. Raises `PopuloraError`."""
    names = [str(folder) for folder in folders] if len(folders) > 1 else [""]
    evaluations = [evaluation_of(folder, name) for folder, name in zip(folders, names, strict=True)]
    made = {name: conditions(folder, one.sources, _benchmarks(one)) for folder, name, one in zip(folders, names, evaluations, strict=True)}
    layouts = tables(evaluations, with_published=published, remarks=differences(made))
    if not layouts:
        raise ConfigError(f"nothing is graded in {', '.join(map(str, folders))} yet: `populora evaluate grade {folders[0]}` goes on")
    if len(folders) == 1:
        layouts += breakdown(folders[0], read_description(folders[0]))
    with disk_errors(out, "create"):
        out.mkdir(parents=True, exist_ok=True)
    written = write_tables(out, NAME, layouts, records(evaluations, published))
    console = Console(highlight=False)
    for layout in layouts:  # printed last: a reader of it may have had enough, as `head` has
        console.print(terminal(layout, console.width))
    sys.stderr.write(f"populora evaluate: written to {', '.join(map(str, written))}\n")


def _benchmarks(evaluation: Evaluation) -> list[str]:
    return list(dict.fromkeys(score.benchmark for score in evaluation.scores if score.graded))
