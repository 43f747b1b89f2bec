"""Completions to verdicts: every item of a benchmark gets one line, in the order of its data; stopped work goes on item by item.

Nothing here loads torch. Programs, and what reads model text, run in the sandbox; what failed is graded once more when nothing else
runs, so that a busy machine cannot fail anybody. A verdict is kept with the digest of its completion: another completion is graded
anew, and so is everything when versions, limits or data are others.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from populora.core.errors import ConfigError
from populora.core.files import json_bytes, read_json, write_file
from populora.core.installed import processor, versions
from populora.core.invocation import install_extra, pip_install
from populora.evals import code, cruxeval, livecodebench, mathematics, selfplay
from populora.evals.benchmarks import Benchmark, Grading
from populora.evals.data import digest
from populora.evals.records import LONGEST_COMPLETION, Grade, Item, append, line_of, read_grades
from populora.sandbox.layers import Tier
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import Limits
from populora.tasks.verifier import Judge

Grader = Callable[..., Grade]
Progress = Callable[[int, int], None]
"""Called with the numbers of graded items and of all."""


@dataclass(frozen=True)
class GraderSettings:
    """How the benchmarks of one kind are graded."""

    grade: Grader
    limits: Limits
    libraries: tuple[str, ...] = ()
    """What decides verdicts beside this package: their versions stand in the result."""
    times: Mapping[str, float] = field(default_factory=dict)
    """Limits within those of the sandbox, in CPU seconds."""
    reads_solutions: bool = False
    """Whether a completion may be said to be plain code."""
    again: Literal["failures", "unless_wrong", "never"] = "failures"
    """What is graded once more, alone: all failures; those that are no value, for unequal values stay unequal; or nothing, where two
    processes agreed already. Then equal jobs are run once."""


def _mathematics(judge: Judge, benchmark: Benchmark, item: Item, completion: str) -> Grade:
    return mathematics.grade_mathematics(mathematics.comparing(judge), benchmark, item, completion)


GRADERS: dict[Grading, GraderSettings] = {
    "code": GraderSettings(code.grade_code, code.LIMITS, ("evalplus", "numpy", "tree-sitter", "tree-sitter-python"), code.TIMES, True),
    "mathematics": GraderSettings(
        _mathematics, mathematics.LIMITS, ("math-verify", "latex2sympy2_extended", "sympy"), again="unless_wrong"
    ),
    "cruxeval": GraderSettings(cruxeval.grade_cruxeval, cruxeval.LIMITS, ("numpy",), again="unless_wrong"),
    "livecodebench": GraderSettings(
        livecodebench.grade_livecodebench, livecodebench.LIMITS, ("numpy",), {"test_seconds": livecodebench.SECONDS}, True
    ),
    "selfplay": GraderSettings(selfplay.grade_selfplay, selfplay.LIMITS, again="never"),
}

UNJUDGED = ("missing", "too_long", "no_answer")
"""Reasons that no program decided: grading again would change nothing."""


@dataclass(frozen=True)
class Summary:
    """What came of a benchmark's completions. Counts are of items."""

    items: int
    correct: int
    readings: dict[str, int]
    """How many are right in each reading."""
    missing: tuple[str, ...]
    """Items without a completion: they count as wrong."""
    overturned: tuple[str, ...]
    """Items that failed at first and were right when graded alone."""
    reasons: dict[str, int]
    """How many failed for which reason, most frequent first."""


@dataclass(frozen=True)
class Work:
    """Completions to grade: ``texts`` by item. ``is_solution``: they are plain code."""

    benchmark: Benchmark
    items: Sequence[Item]
    texts: Mapping[str, str]
    data_sha256: str
    is_solution: bool = False
    release: str = ""
    """Of the data that the items are from, where the benchmark has several."""

    @property
    def settings(self) -> GraderSettings:
        return GRADERS[self.benchmark.grading]


@dataclass(frozen=True)
class Court:
    """What grades a kind of benchmarks: a sandbox of so many workers."""

    judge: Judge
    tier: Tier
    workers: int


def needed_for(benchmark: Benchmark) -> str:
    """What has to be installed before this benchmark can be graded, in words; empty if nothing."""
    absent = [name for name in GRADERS[benchmark.grading].libraries if versions((name,))[name] == "not installed"]
    if not absent:
        return ""
    return (
        f"grading {benchmark.name} needs {', '.join(absent)}: `{install_extra('evaluate')}`, then "
        f"`{pip_install('--no-deps', 'evalplus==0.3.1')}` (without its seventy dependencies, of which none is used)"
    )


@contextmanager
def open_court(benchmark: Benchmark, workers: int, allow_weak: bool = False) -> Iterator[Court]:
    """The sandbox that grades benchmarks of this kind. Raises `ConfigError` where a library is missing, `SandboxUnavailableError`."""
    if needed := needed_for(benchmark):
        raise ConfigError(needed)
    settings = GRADERS[benchmark.grading]
    with SandboxPool(settings.limits, workers, allow_weak) as pool:
        yield Court(selfplay.Remembering(pool) if settings.again == "never" else pool, pool.tier, workers)


def grade(work: Work, out: Path, court: Court, progress: Progress = lambda done, of: None) -> Summary:
    """Write one verdict for each item into ``out``, and counts and facts beside it (``.json``).

    What ``out`` holds already under the same facts is kept. Raises `RunDirectoryError` and `SandboxFault`.
    """
    facts, beside = _facts(work), out.with_suffix(".json")
    _check_out(out, beside)
    done = _kept(out, work) if beside.exists() and read_json(beside).get("facts") == facts else {}
    write_file(out, b"".join(map(line_of, done.values())))
    write_file(beside, json_bytes({"facts": facts}))
    _first(work, done, out, court, progress)
    if work.settings.again != "never":
        _again(work, done, out, court)
    grades = [done[item.id] for item in work.items]
    summary = _summary(grades)
    machine = {"processor": processor(), "cores": os.cpu_count(), "workers": court.workers, "sandbox_tier": court.tier}
    write_file(out, b"".join(map(line_of, grades)))
    write_file(beside, json_bytes({**asdict(summary), "facts": facts, "machine": machine}))
    return summary


def _check_out(out: Path, beside: Path) -> None:
    """Nothing but verdicts is written over: not the completions, the data, a device, or another file's summary. Raises `ConfigError`."""
    if out == beside:
        raise ConfigError(f"--out is '{out}': expected a name that does not end in .json, for counts go into the neighbour that does")
    known = isinstance(summary := read_json(beside), dict) and "facts" in summary if beside.is_file() else False
    for path in (out, beside):
        if path.exists() and not (known and path.is_file()):
            raise ConfigError(
                f"'{path}' is there already and holds no verdicts: expected --out to be a new file, such as verdicts.jsonl, or one that "
                "this command wrote"
            )


def _facts(work: Work) -> dict[str, Any]:
    """All that decides the verdicts beside the completions."""
    limits = {name: value for name, value in asdict(work.settings.limits).items() if name not in ("harness", "packages")}
    facts = {
        "benchmark": work.benchmark.name, "data_sha256": work.data_sha256, "is_solution": work.is_solution,
        "versions": versions(("populora", *work.settings.libraries)), "limits": limits,
        "times": dict(work.settings.times),
    }  # fmt: skip
    return facts | ({"release": work.release} if work.release else {})


def _kept(out: Path, work: Work) -> dict[str, Grade]:
    """Verdicts of an earlier start that are about these very completions."""
    return {name: found for name, found in read_grades(out).items() if found.of == _name_of(work.texts.get(name))}


def _name_of(text: str | None) -> str:
    return "" if text is None else digest(text.encode(errors="surrogatepass"))[:16]


def _first(work: Work, done: dict[str, Grade], out: Path, court: Court, progress: Progress) -> None:
    graders = ThreadPoolExecutor(2 * court.workers)  # while some wait for the sandbox, others read and compare
    try:
        for future in as_completed([graders.submit(_graded, work, item, court) for item in work.items if item.id not in done]):
            _note(future.result(), done, out)
            progress(len(done), len(work.items))
    finally:
        graders.shutdown(wait=False, cancel_futures=True)  # after Ctrl-C the court ends what is being run: nobody waits a minute for it


def _again(work: Work, done: dict[str, Grade], out: Path, court: Court) -> None:
    """Failures once more, one after the other."""
    for item in work.items:
        first = done[item.id]
        settled = first.reason in UNJUDGED or (first.reason == "wrong" and work.settings.again == "unless_wrong")
        if not (first.again or all(first.readings.values()) or settled):
            second = _graded(work, item, court)
            _note(replace(second, again="overturned" if second.correct and not first.correct else "confirmed"), done, out)


def _note(found: Grade, done: dict[str, Grade], out: Path) -> None:
    done[found.item_id] = found
    append(out, found)


def _graded(work: Work, item: Item, court: Court) -> Grade:
    text, settings = work.texts.get(item.id), work.settings
    if text is None:
        return Grade(item.id, False, "missing")
    if len(text) > LONGEST_COMPLETION:
        return Grade(item.id, False, "too_long", of=_name_of(text))
    options = {"is_solution": work.is_solution} if settings.reads_solutions else {}
    return replace(settings.grade(court.judge, work.benchmark, item, text, **options), of=_name_of(text))


def _summary(grades: Sequence[Grade]) -> Summary:
    names = sorted({name for found in grades for name in found.readings})
    readings = {name: sum(found.readings.get(name, False) for found in grades) for name in names}
    reasons = Counter(found.reason.partition(":")[0] for found in grades if not found.correct)
    return Summary(
        len(grades), sum(found.correct for found in grades), readings,
        tuple(found.item_id for found in grades if found.reason == "missing"),
        tuple(found.item_id for found in grades if found.again == "overturned"), dict(reasons.most_common()),
    )  # fmt: skip
