"""``populora evaluate WHAT --suite …``: generate, grade and tabulate; ``generate``, ``grade``, ``table`` and ``compare`` do one of these,
``pairs`` lets students and teachers of a run meet.

Exit codes: 0; 1 if completions had faults; 3 if a benchmark had to be skipped; 2 for an error; 130 after Ctrl-C.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated

import tyro

from populora.cli.arguments import QUIET, parse
from populora.cli.evaluate_generate import SKIPPED, Generate, generate_into, say
from populora.cli.evaluate_grade import GradeArguments, grade_folder
from populora.core.errors import ConfigError
from populora.evals.data import MissingDataError
from populora.evals.downstream_table import downstream_tables, notes_on_settings, score_records
from populora.evals.folder import read_evaluation
from populora.evals.grading import check_graders
from populora.evals.text_table import print_table, write_tables


@dataclass(frozen=True)
class Evaluate(Generate):
    """Evaluate members of a run, adapters, a base or an endpoint on benchmarks: greedy pass@1, as in the paper's downstream table.

    The same command resumes where it was stopped. Its parts are commands, too: `populora evaluate generate` (completions only),
    `populora evaluate grade` (a folder, or completions of any origin), `populora evaluate table`, `populora evaluate compare`.
    `populora evaluate pairs` lets every student of a run attempt the problems of every teacher.
    docs/evaluation.md explains all of it.
    """

    workers: Annotated[int, tyro.conf.arg(metavar="N")] = 2
    """Items that are graded at the same time."""
    allow_weak: tyro.conf.FlagCreatePairsOff[Annotated[bool, QUIET]] = False
    """Grade on a machine without system-call filters: programs can then do what your user can."""
    published: tyro.conf.FlagCreatePairsOff[Annotated[bool, QUIET]] = False
    """Print the paper's table below ours."""


@dataclass(frozen=True)
class TableArguments:
    """Print the downstream table of evaluations, as the paper's: mean and spread of the population and by role, worst and best, members."""

    folders: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="FOLDER ..."), QUIET] = ()
    """Folders that `populora evaluate` wrote."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="DIR"), QUIET] = None
    """Folder for `downstream.md`, `.tex` and `.csv`, by default the first of FOLDER."""
    published: tyro.conf.FlagCreatePairsOff[Annotated[bool, QUIET]] = False
    """Print the paper's table below ours."""


def main(arguments: Sequence[str]) -> int:
    """Run a subcommand, or all of them; returns the exit code. Any other first argument names a model. Raises `PopuloraError`."""
    part = arguments[0] if arguments else ""
    try:
        if part in ("generate", "grade", "compare", "pairs"):
            return import_module(f"populora.cli.evaluate_{part}").main(arguments[1:])
        if part == "table":
            table = parse(TableArguments, arguments[1:], "evaluate table")
            if not table.folders:
                raise ConfigError("expected the folder of an evaluation, such as runs/tiny/evaluations/step_00060")
            _tabulate(table.folders, table.out or table.folders[0], table.published)
            return 0
        args = parse(Evaluate, arguments, "evaluate")
        if args.workers < 1:
            raise ConfigError(f"--workers is {args.workers}: expected 1 or more")
        folder, generated = generate_into(args, partial(check_graders, allow_weak=args.allow_weak))
        graded = grade_folder(folder, GradeArguments(workers=args.workers, allow_weak=args.allow_weak))
        _tabulate([folder], folder, args.published)
        return max(generated, graded)
    except MissingDataError as error:
        say(f"skipped {error}")
        return SKIPPED
    except KeyboardInterrupt:
        if part in ("table", "compare", "pairs"):
            raise
        say("stopped; what is done is kept, and the same command resumes")
        return 130


def _tabulate(folders: Sequence[Path], out: Path, paper: bool) -> None:
    """Print the table of evaluations, and write its files into ``out``. Raises `PopuloraError`."""
    names = [str(folder) for folder in folders] if len(folders) > 1 else [""]
    evaluations = [read_evaluation(folder, name) for folder, name in zip(folders, names, strict=True)]
    tables = downstream_tables(evaluations, paper, notes_on_settings(dict(zip(folders, evaluations, strict=True))))
    if not tables:
        raise ConfigError(f"nothing is graded in {', '.join(map(str, folders))} yet: `populora evaluate grade {folders[0]}` does it")
    files = write_tables(out, "downstream", tables, score_records(evaluations, paper))
    for table in tables:
        print_table(table)
    say(f"written to {', '.join(map(str, files))}")
