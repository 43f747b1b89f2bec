"""``populora evaluate WHAT --suite …``: generate, grade and tabulate; ``generate``, ``grade``, ``table`` and ``compare`` do one of these.

Generation loads the model in this process (or asks an endpoint); grading is a process of its own, without torch. Both go on item by
item where they were stopped. Exit codes: 0; 1 if completions had faults; 3 if a benchmark or a source had to be skipped; 2 for an error;
130 after Ctrl-C.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated

import tyro

from populora.cli.arguments import QUIET, parse
from populora.cli.evaluate_generate import SKIPPED, Generate, generate_into
from populora.core.errors import ConfigError, PopuloraError
from populora.evals.benchmarks import Benchmark
from populora.evals.data import MissingDataError
from populora.evals.grading import needed_for
from populora.evals.unfinished import finish

PARTS = {
    "generate": "evaluate_generate",
    "grade": "evaluate_grade",
    "table": "evaluate_table",
    "compare": "evaluate_compare",
}
"""What may follow ``evaluate``, with its module in `populora.cli`; anything else names what is to be evaluated."""

FAULTS = 4
"""What grading's process returns for 1 (completions had faults), since an interpreter that breaks down returns 1 as well."""
GOES_ON = (0, FAULTS, SKIPPED)
"""Exit codes of that process after which there is something to tabulate."""
GRADING = (  # ends with the process that started it, also when that is killed: it holds the folder's lock
    "import sys; from populora.cli.main import main; from populora.sandbox.jail import die_with_parent; die_with_parent(int(sys.argv[1])); "
    f"code = main(sys.argv[2:]); sys.exit({FAULTS} if code == 1 else code)"
)
STOPPED = 130
PATIENCE = 10.0
"""Seconds that grading may take to end after Ctrl-C."""


@dataclass(frozen=True)
class Evaluate(Generate):
    """Judge members of a run, adapters, a base or an endpoint on benchmarks: greedy pass@1, as in the paper's downstream table.

    The same command goes on where it was stopped. Its parts are commands, too: `populora evaluate generate` (completions only),
    `populora evaluate grade` (a folder, or completions of any origin), `populora evaluate table`, `populora evaluate compare`.
    docs/evaluation.md explains all of it.
    """

    workers: Annotated[int, tyro.conf.arg(metavar="N")] = 2
    """Items that are graded at the same time."""
    allow_weak: tyro.conf.FlagCreatePairsOff[Annotated[bool, QUIET]] = False
    """Grade on a machine without system-call filters: programs can then do what your user can."""
    published: tyro.conf.FlagCreatePairsOff[Annotated[bool, QUIET]] = False
    """Lay the paper's table under ours."""


def main(arguments: Sequence[str]) -> int:
    """Run the part that is asked for, or all of them; returns the exit code. Raises `PopuloraError`."""
    try:
        if arguments and arguments[0] in PARTS:
            return import_module(f"populora.cli.{PARTS[arguments[0]]}").main(arguments[1:])
        return _all(parse(Evaluate, arguments, "evaluate"))
    except MissingDataError as error:
        sys.stderr.write(f"populora evaluate: skipped {error}\n")
        return SKIPPED
    except KeyboardInterrupt:
        sys.stderr.write("populora evaluate: stopped; what is done is kept, and the same command goes on from there\n")
        return STOPPED


def _all(chosen: Evaluate) -> int:
    if chosen.workers < 1:
        raise ConfigError(f"--workers is {chosen.workers}: expected 1 or more")
    folder, generated = generate_into(chosen, _gradable)
    # In a process of its own: what a model wrote is graded where no model, GPU or torch is.
    weak = ["--allow-weak"] if chosen.allow_weak else []
    grade = ("evaluate", "grade", str(folder), "--workers", str(chosen.workers), *weak)
    graded = _waited_for(sys.executable, "-c", GRADING, str(os.getpid()), *grade)
    if graded == 1:
        raise PopuloraError("grading broke down (see above): what is graded is kept, and the same command goes on from there")
    if graded not in GOES_ON:
        return graded
    from populora.cli.evaluate_table import tabulate

    tabulate([folder], folder, chosen.published)
    finish(folder)
    return max(generated, 1 if graded == FAULTS else graded)


def _gradable(benchmark: Benchmark) -> None:
    """Raise `ConfigError` for one whose grader is not installed: hours of generation would end there."""
    if needed := needed_for(benchmark):
        raise ConfigError(f"{needed}. Or leave it out of --suite, or do without verdicts (`populora evaluate generate`)")


def _waited_for(*command: str) -> int:
    """Its exit code. A terminal's Ctrl-C reaches it, too: it says so and ends by itself. Raises `PopuloraError` if it was killed."""
    with subprocess.Popen(command) as process:  # noqa: S603 - our own command line
        try:
            code = process.wait()
        except KeyboardInterrupt:
            try:
                return process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                raise KeyboardInterrupt from None
    if code < 0:
        raise PopuloraError(f"grading was ended by signal {-code}: what is graded is kept, and the same command goes on from there")
    return code
