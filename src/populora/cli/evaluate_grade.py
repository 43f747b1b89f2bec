"""``populora evaluate grade``: completions to verdicts, of an evaluation's folder or of any origin.

Nothing of this loads torch. Exit codes: 0; 1 if the completions had faults (missing items, lines that are none); 3 if a benchmark of a
folder had to be skipped, because its data or what grades it are not to be had. The rest is graded.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated

import tyro

from populora.cli.arguments import QUIET, parse
from populora.cli.progress import counting
from populora.core.errors import ConfigError
from populora.core.files import disk_errors
from populora.evals.benchmarks import BENCHMARKS, Benchmark, benchmark, release_of
from populora.evals.completions import completions_file
from populora.evals.data import MissingDataError, digest_of, find_data, load_items, load_pinned
from populora.evals.folder import Description, read_description
from populora.evals.grading import GRADERS, Court, Summary, Work, grade, needed_for, open_court
from populora.evals.records import Item
from populora.evals.results import verdict_file
from populora.evals.submitted import Completions, read_completions
from populora.runs.directory import locked

SKIPPED = 3
_NAMED = 10
"""So many missing items are named."""


@dataclass(frozen=True)
class Grade:
    """Grade an evaluation (`grade FOLDER`), or completions made by anything (`grade BENCH COMPLETIONS.jsonl --out VERDICTS.jsonl`):
    {"item_id", "completion"} lines in, {"item_id", "correct", "reason"} lines out.

    Every item of the data gets a line; one without a completion is wrong, with the reason `missing`. Started again with the same
    files, it goes on where it was stopped.
    """

    what: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="FOLDER | BENCH COMPLETIONS.jsonl"), QUIET] = ()
    """A folder of `populora evaluate`; or a benchmark such as `humaneval_plus` or `gsm8k`, and a file with one JSON object a line."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE"), QUIET] = None
    """Verdicts on a file of completions, one a line; counts, versions and limits go into its neighbour `.json`."""
    data: Annotated[Path | None, tyro.conf.arg(metavar="PATH"), QUIET] = None
    """The benchmark's data file (LiveCodeBench: folder), by default downloaded. Of an evaluation: folder of all, if it is another now."""
    completion_is_solution: tyro.conf.FlagCreatePairsOff[Annotated[bool, QUIET]] = False
    """Code benchmarks: completions are plain code, nothing is to be extracted from them."""
    workers: Annotated[int, tyro.conf.arg(metavar="N")] = 2
    """Items that are graded at the same time."""
    allow_weak: tyro.conf.FlagCreatePairsOff[Annotated[bool, QUIET]] = False
    """Accept a machine without system-call filters: programs can then do what your user can."""


def main(arguments: Sequence[str]) -> int:
    """Grade; returns 0, or 1 where the completions had faults. Raises `PopuloraError`."""
    chosen = parse(Grade, arguments, "evaluate grade")
    if chosen.workers < 1:
        raise ConfigError(f"--workers is {chosen.workers}: expected 1 or more")
    if len(chosen.what) == 1:
        if chosen.out or chosen.completion_is_solution:
            raise ConfigError("--out and --completion-is-solution are for a file of completions: a folder has its own verdicts and prompts")
        return _folder(Path(chosen.what[0]), chosen)
    if len(chosen.what) != 2 or chosen.out is None:
        raise ConfigError("expected the folder of an evaluation, or BENCH COMPLETIONS.jsonl --out VERDICTS.jsonl")
    return _file(benchmark(chosen.what[0]), Path(chosen.what[1]), chosen.out, chosen)


def _file(which: Benchmark, completions: Path, out: Path, chosen: Grade) -> int:
    if chosen.completion_is_solution and not GRADERS[which.grading].reads_solutions:
        raise ConfigError(f"--completion-is-solution is for code benchmarks, {which.name} is none")
    path = chosen.data or find_data(which)
    items = load_items(which, path, verify=False)
    sha256 = digest_of(path)
    if sha256 != which.sha256 and which.sha256:
        _say(f"warning: '{path}' is not the pinned {which.name} (SHA-256 {sha256}): these figures compare with no others")
    found = read_completions(completions, items)
    work = Work(which, items, found.texts, sha256, chosen.completion_is_solution, release_of(which, len(items)))
    with open_court(which, chosen.workers, chosen.allow_weak) as court, counting(which.name) as progress:
        summary = grade(work, out, court, progress)
    _report(_named(which, len(items)), summary, found)
    return 1 if found.missing or found.complaints else 0


def _folder(folder: Path, chosen: Grade) -> int:
    """Every completion of an evaluation. What was not generated has no verdict: the table shows the score as incomplete."""
    description, code = read_description(folder), 0
    if not any(completions_file(folder, name, one.name).is_file() for name in description.benchmarks for one in description.sources):
        raise ConfigError(f"'{folder}' has no completions yet: give the `populora evaluate` command that began it again")
    by_kind = sorted((BENCHMARKS[name] for name in description.benchmarks), key=lambda one: one.grading)
    with locked(folder):
        for _, alike in groupby(by_kind, key=lambda one: one.grading):
            ready: dict[Benchmark, tuple[list[Item], str]] = {}
            for which in alike:
                try:
                    ready[which] = _data_of(which, description, chosen.data)
                except MissingDataError as error:
                    _say(f"skipped {error}")
                    code = SKIPPED
            if ready:
                with open_court(next(iter(ready)), chosen.workers, chosen.allow_weak) as court:
                    faults = [_benchmark(folder, description, which, data, court) for which, data in ready.items()]
                code = max(code, int(any(faults)))
    return code


def _data_of(which: Benchmark, description: Description, data: Path | None) -> tuple[list[Item], str]:
    """A benchmark's items and the digest of their files. Raises `MissingDataError` where it cannot be graded."""
    if needed := needed_for(which):
        raise MissingDataError(needed)
    path = Path(description.benchmarks[which.name].path)
    if data or which.grading == "selfplay":  # the package's own file is where the package is
        path = find_data(which, str(data or ""))
    elif not path.exists():
        raise MissingDataError(f"{which.name}: its data is not at '{path}' any more: say with --data DIR where it is")
    return load_pinned(which, path), digest_of(path)


def _benchmark(folder: Path, description: Description, which: Benchmark, data: tuple[list[Item], str], court: Court) -> int:
    """Grade all sources; returns the number of lines that are no completions."""
    (items, sha256), faults = data, 0
    for source in description.sources:
        completions = completions_file(folder, which.name, source.name)
        if not completions.is_file():
            continue
        found = read_completions(completions, items)
        asked = [item for item in items if item.id in found.texts]
        out = verdict_file(folder, which.name, source.name)
        with disk_errors(out.parent, "create"):
            out.parent.mkdir(parents=True, exist_ok=True)
        with counting(f"{which.name} {source.name}") as progress:
            work = Work(which, asked, found.texts, sha256, release=release_of(which, len(items)))
            summary = grade(work, out, court, progress)
        _report(f"{source.name} on {_named(which, len(items))}", summary, replace(found, missing=()))
        faults += len(found.complaints)
    return faults


def _named(which: Benchmark, items: int) -> str:
    """With its release, where it has several."""
    release = release_of(which, items)
    return f"{which.name} ({release})" if release else which.name


def _report(what: str, summary: Summary, found: Completions) -> None:
    for complaint in found.complaints:
        _say(f"{what}: {complaint}")
    if found.missing:
        more = f" and {len(found.missing) - _NAMED} more" if len(found.missing) > _NAMED else ""
        _say(f"{len(found.missing)} items have no completion and count as wrong: {', '.join(found.missing[:_NAMED])}{more}")
    if summary.overturned:
        _say(f"right when graded alone, wrong at first: {', '.join(summary.overturned)}")
    readings = ", ".join(f"{name} {count}" for name, count in summary.readings.items())
    share = f"{100 * summary.correct / summary.items:.1f} %" if summary.items else "none"
    sys.stdout.write(f"{what}: {summary.correct} of {summary.items} correct ({share})")
    sys.stdout.write(f"; {readings}\n" if readings else "\n")


def _say(text: str) -> None:
    sys.stderr.write(f"populora evaluate grade: {text}\n")
