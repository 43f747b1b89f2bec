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
from populora.evals.aggregates import graded_benchmarks
from populora.evals.downstream_table import downstream_tables, score_records
from populora.evals.folder import read_evaluation, settings_diff, settings_of
from populora.evals.text_table import print_table, write_tables


@dataclass(frozen=True)
class TableArguments:
    """Print the downstream table of evaluations, as the paper's: members, mean and spread by role, worst and best."""

    folders: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FOLDER ..."), QUIET] = ()
    """Folders that `populora evaluate` wrote."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="DIR"), QUIET] = None
    """Folder for `downstream.md`, `.tex` and `.csv`, by default the first of FOLDER."""
    published: tyro.conf.FlagCreatePairsOff[Annotated[bool, QUIET]] = False
    """Print the paper's table below ours."""


def main(arguments: Sequence[str]) -> int:
    """Print the table; returns 0. Raises `PopuloraError`."""
    args = parse(TableArguments, arguments, "evaluate table")
    if not args.folders:
        raise ConfigError("expected the folder of an evaluation, such as runs/tiny/evaluations/step_00060")
    tabulate(args.folders, args.out or args.folders[0], args.published)
    return 0


def tabulate(folders: Sequence[Path], out: Path, paper: bool) -> None:
    """Print the table of evaluations, and write its files into ``out``. Raises `PopuloraError`."""
    names = [str(folder) for folder in folders] if len(folders) > 1 else [""]
    evaluations = [read_evaluation(folder, name) for folder, name in zip(folders, names, strict=True)]
    settings = {
        name: settings_of(folder, evaluation.models, graded_benchmarks([evaluation]))
        for folder, name, evaluation in zip(folders, names, evaluations, strict=True)
    }
    tables = downstream_tables(evaluations, paper, settings_diff(settings))
    if not tables:
        raise ConfigError(f"nothing is graded in {', '.join(map(str, folders))} yet: `populora evaluate grade {folders[0]}` does it")
    files = write_tables(out, "downstream", tables, score_records(evaluations, paper))
    for table in tables:
        print_table(table, Console(highlight=False))
    sys.stderr.write(f"populora evaluate: written to {', '.join(map(str, files))}\n")
