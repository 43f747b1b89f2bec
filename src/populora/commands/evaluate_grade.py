"""``populora evaluate grade BENCH completions.jsonl --data FILE --out verdicts.jsonl``: completions of any origin to verdicts.

Nothing of this loads torch. Exit codes: 0, or 1 if the completions had faults (missing items, lines that are none): the rest is graded.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from populora.commands.arguments import parse
from populora.commands.progress import counting
from populora.errors import ConfigError
from populora.evals.benchmarks import Benchmark, benchmark
from populora.evals.submitted import Completions, read_completions
from populora.evals.data import digest, find_data, load_items
from populora.evals.grading import GRADERS, Summary, Work, grade, grading_pool

_NAMED = 10
"""So many missing items are named."""


@dataclass(frozen=True)
class GradeFile:
    """Grade the completions of one benchmark, made by anything: {"item_id", "completion"} lines in, {"item_id", "correct", "reason"} out.

    Every item of the data gets a line; one without a completion is wrong, with the reason `missing`. Started again with the same
    files, it goes on where it was stopped.
    """

    benchmark: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="BENCH")]
    """Such as `humaneval_plus`, `mbpp_plus`, `cruxeval_output`, `gsm8k`."""
    completions: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="COMPLETIONS.jsonl")]
    """One JSON object a line."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FILE")]
    """Verdicts, one a line; counts, versions and limits go into its neighbour `.json`."""
    data: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """The benchmark's data file (a folder for LiveCodeBench); by default it is downloaded from where it was published."""
    completion_is_solution: bool = False
    """Code benchmarks: completions are plain code, nothing is to be extracted from them."""
    workers: int = 2
    """Items that are graded at the same time."""
    allow_weak: bool = False
    """Accept a machine without system-call filters: programs can then do what your user can."""


def main(arguments: Sequence[str]) -> int:
    """Grade; returns 0, or 1 where the completions had faults. Raises `PopuloraError`."""
    chosen = parse(GradeFile, arguments, "evaluate grade")
    which = benchmark(chosen.benchmark)
    if chosen.completion_is_solution and not GRADERS[which.grading].reads_solutions:
        raise ConfigError(f"--completion-is-solution is for code benchmarks, {which.name} is none")
    if chosen.workers < 1:
        raise ConfigError(f"--workers is {chosen.workers}: expected 1 or more")
    path = chosen.data or find_data(which)
    items = load_items(which, path, verify=False)
    sha256 = digest(path.read_bytes()) if path.is_file() else ""
    if sha256 != which.sha256 and which.sha256:
        _say(f"warning: '{path}' is not the pinned {which.name} (SHA-256 {sha256}): these figures compare with no others")
    found = read_completions(chosen.completions, items)
    work = Work(which, items, found.texts, sha256, chosen.completion_is_solution)
    with grading_pool(which, chosen.workers, chosen.allow_weak) as pool, counting(which.name) as progress:
        summary = grade(work, chosen.out, pool, chosen.workers, progress)
    _report(which, summary, found)
    return 1 if found.missing or found.complaints else 0


def _report(which: Benchmark, summary: Summary, found: Completions) -> None:
    for complaint in found.complaints:
        _say(complaint)
    if found.missing:
        more = f" and {len(found.missing) - _NAMED} more" if len(found.missing) > _NAMED else ""
        _say(f"{len(found.missing)} items have no completion and count as wrong: {', '.join(found.missing[:_NAMED])}{more}")
    if summary.overturned:
        _say(f"right when graded alone, wrong at first: {', '.join(summary.overturned)}")
    readings = ", ".join(f"{name} {count}" for name, count in summary.readings.items())
    sys.stdout.write(f"{which.name}: {summary.correct} of {summary.items} correct ({100 * summary.correct / summary.items:.1f} %)")
    sys.stdout.write(f"; {readings}\n" if readings else "\n")


def _say(text: str) -> None:
    sys.stderr.write(f"populora evaluate grade: {text}\n")
