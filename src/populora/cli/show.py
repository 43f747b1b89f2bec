"""``populora show [RUN] --step N``: read what happened in a step, problem by problem; without a step, the summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from populora.cli.arguments import parse
from populora.cli.transcript import Selection, render_step
from populora.core.errors import ConfigError
from populora.core.types import TaskType
from populora.runs.directory import read_config
from populora.runs.metrics_log import latest_run
from populora.runs.records import read_table
from populora.runs.summary import print_summary, summarise


@dataclass(frozen=True)
class Show:
    """Print the problems of a step, the answers with their reasoning, the verdicts and the rewards."""

    run: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="[RUN]")] = None
    """Run directory, such as `runs/tiny`; by default the newest under `runs/`."""
    step: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Step to read, from 1 on; 0 for the summary of the whole run."""
    teacher: Annotated[str | None, tyro.conf.arg(metavar="MEMBER")] = None
    """Only problems of this teacher, such as `T0`."""
    student: Annotated[str | None, tyro.conf.arg(metavar="MEMBER")] = None
    """Only answers of this student, such as `S1`."""
    task: Annotated[str | None, tyro.conf.arg(metavar="TYPE")] = None
    """Only one task type: `code_i`, `code_o` or `code_f`."""
    limit: Annotated[int, tyro.conf.arg(metavar="K")] = 5
    """How many problems, and how many rejected proposals, to print; 0 for all."""


def main(arguments: Sequence[str]) -> int:
    """Print to stdout; returns 0. Raises `PopuloraError`."""
    chosen = parse(Show, arguments, "show")
    console = Console(highlight=False)
    run = chosen.run or latest_run()
    read_config(run)
    if chosen.step == 0:
        if given := [name for name in ("teacher", "student", "task") if getattr(chosen, name) is not None]:
            raise ConfigError(f"--{given[0]} selects from one step: expected --step N with it.")
        print_summary(console, summarise(run))
        return 0
    if chosen.task is not None and chosen.task not in list(TaskType):
        raise ConfigError(f"--task is '{chosen.task}': expected one of {', '.join(TaskType)}.")
    if chosen.limit < 0:
        raise ConfigError(f"--limit is {chosen.limit}: expected a number of problems, or 0 for all.")
    tables = {name: read_table(run, name, [chosen.step]).to_pylist() for name in ("proposals", "problems", "attempts", "matchups")}
    selection = Selection(chosen.teacher, chosen.student, chosen.task, chosen.limit)
    for part in render_step(tables, selection):
        console.print(part)
    return 0
