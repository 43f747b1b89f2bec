"""``populora evaluate WHAT --suite …``: generate, grade and tabulate; ``generate``, ``grade``, ``table`` and ``compare`` do one of these.

Generation and grading both resume item by item. Exit codes: 0; 1 if completions had faults; 3 if a benchmark had to be skipped; 2 for an
error; 130 after Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated

import tyro

from populora.cli.arguments import QUIET, parse
from populora.cli.evaluate_generate import SKIPPED, Generate, generate_into
from populora.core.errors import ConfigError
from populora.evals.benchmarks import Benchmark
from populora.evals.data import MissingDataError
from populora.evals.grading import missing_libraries

PARTS = {
    "generate": "evaluate_generate",
    "grade": "evaluate_grade",
    "table": "evaluate_table",
    "compare": "evaluate_compare",
}
"""The subcommands with their modules in `populora.cli`; any other argument names a model to evaluate."""
STOPPED = 130


@dataclass(frozen=True)
class Evaluate(Generate):
    """Evaluate members of a run, adapters, a base or an endpoint on benchmarks: greedy pass@1, as in the paper's downstream table.

    The same command resumes where it was stopped. Its parts are commands, too: `populora evaluate generate` (completions only),
    `populora evaluate grade` (a folder, or completions of any origin), `populora evaluate table`, `populora evaluate compare`.
    docs/evaluation.md explains all of it.
    """

    workers: Annotated[int, tyro.conf.arg(metavar="N")] = 2
    """Items that are graded at the same time."""
    allow_weak: tyro.conf.FlagCreatePairsOff[Annotated[bool, QUIET]] = False
    """Grade on a machine without system-call filters: programs can then do what your user can."""
    published: tyro.conf.FlagCreatePairsOff[Annotated[bool, QUIET]] = False
    """Print the paper's table below ours."""


def main(arguments: Sequence[str]) -> int:
    """Run a subcommand, or all of them; returns the exit code. Raises `PopuloraError`."""
    try:
        if arguments and arguments[0] in PARTS:
            return import_module(f"populora.cli.{PARTS[arguments[0]]}").main(arguments[1:])
        return _evaluate(parse(Evaluate, arguments, "evaluate"))
    except MissingDataError as error:
        sys.stderr.write(f"populora evaluate: skipped {error}\n")
        return SKIPPED
    except KeyboardInterrupt:
        sys.stderr.write("populora evaluate: stopped; what is done is kept, and the same command resumes\n")
        return STOPPED


def _evaluate(args: Evaluate) -> int:
    if args.workers < 1:
        raise ConfigError(f"--workers is {args.workers}: expected 1 or more")

    def check_gradable(benchmark: Benchmark) -> None:
        """Refuse a benchmark whose grader is not installed, before hours of generation."""
        if message := missing_libraries(benchmark):
            raise ConfigError(f"{message}. Or leave it out of --suite, or do without verdicts (`populora evaluate generate`)")

    folder, generated = generate_into(args, check_gradable)
    from populora.cli.evaluate_grade import GradeArguments, grade_folder
    from populora.cli.evaluate_table import tabulate

    graded = grade_folder(folder, GradeArguments(workers=args.workers, allow_weak=args.allow_weak))
    tabulate([folder], folder, args.published)
    return max(generated, graded)
