"""Grade completions: every item of a benchmark gets one line, in the order of its data. Stopped work resumes item by item.

Model programs, and libraries that read model text, run in the sandbox. Failures are graded once more while nothing else runs, so that no
verdict depends on the machine's load. Another completion is graded anew, and so is everything when versions, limits or data change.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from populora.core.errors import ConfigError
from populora.core.files import digest, json_bytes, read_json, write_file
from populora.core.installed import MISSING, processor, versions
from populora.core.invocation import install_extra, pip_install
from populora.domains.sql import DOMAIN
from populora.evals.benchmarks import Benchmark, Grading
from populora.evals.eval_records import Grade, Item, append, read_records, to_lines
from populora.evals.graders import code, cruxeval, execution, livecodebench, mathematics, tiny_suite
from populora.sandbox.layers import Tier
from populora.sandbox.pool import Judge, SandboxPool
from populora.sandbox.protocol import Limits

LONGEST_COMPLETION = 1 << 18
"""Characters of a completion that is graded, far above every benchmark's limit. A longer one is wrong (``too_long``)."""


@dataclass(frozen=True)
class GraderSettings:
    """The settings of one kind of grader."""

    grade: Callable[..., Grade]
    limits: Limits
    libraries: tuple[str, ...] = ()
    """Libraries that decide verdicts; their versions are recorded."""
    times: Mapping[str, float] = field(default_factory=dict)
    """Limits within those of the sandbox, in CPU seconds."""
    reads_solutions: bool = False
    """True if completions may be plain code."""
    retry: Literal["failures", "unless_wrong", "never"] = "failures"
    """The failures that are graded a second time, one by one: all; those without a value to compare; none, if two processes agreed."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What else decides verdicts."""


GRADERS: dict[Grading, GraderSettings] = {
    "code": GraderSettings(code.grade_code, code.LIMITS, ("evalplus", "numpy", "tree-sitter", "tree-sitter-python"), code.TIMES, True),
    "mathematics": GraderSettings(
        mathematics.grade_mathematics, mathematics.LIMITS, ("math-verify", "latex2sympy2_extended", "sympy"), retry="unless_wrong"
    ),
    "cruxeval": GraderSettings(cruxeval.grade_cruxeval, cruxeval.LIMITS, ("numpy",), retry="unless_wrong"),
    "livecodebench": GraderSettings(
        livecodebench.grade_livecodebench, livecodebench.LIMITS, ("numpy",), {"test_seconds": livecodebench.SECONDS}, True
    ),
    "execution": GraderSettings(execution.grade_execution, execution.LIMITS, ("sqlglot",), retry="unless_wrong"),
    "selfplay": GraderSettings(tiny_suite.grade_tiny, tiny_suite.LIMITS, retry="never"),
}


def settings_of(benchmark: Benchmark) -> GraderSettings:
    """Return how a benchmark is graded. Only one with SQL needs SQLite. Raises `ConfigError` where that is not installed."""
    settings = GRADERS[benchmark.grading]
    match benchmark.grading:
        case "execution":
            return replace(settings, facts=DOMAIN.facts(), limits=execution.limits())
        case "selfplay":
            return replace(settings, facts=tiny_suite.facts_of(benchmark), limits=tiny_suite.limits_of(benchmark))
    return settings


@dataclass(frozen=True)
class GradingJob:
    """Completions to grade: ``texts`` by item, which are plain code if ``is_solution``."""

    benchmark: Benchmark
    items: Sequence[Item]
    texts: Mapping[str, str]
    data_sha256: str
    is_solution: bool = False

    @cached_property
    def settings(self) -> GraderSettings:
        """How the benchmark is graded."""
        return settings_of(self.benchmark)

    def facts(self) -> dict[str, Any]:
        """Collect everything that decides the verdicts, in addition to the completions."""
        left_out = ("harness", "packages", "distributions", "runners")
        limits = {name: value for name, value in asdict(self.settings.limits).items() if name not in left_out}
        return {
            "benchmark": self.benchmark.name, "data_sha256": self.data_sha256, "is_solution": self.is_solution,
            "versions": versions(("populora", *self.settings.libraries)), "limits": limits, "times": dict(self.settings.times),
            **self.settings.facts,
        }  # fmt: skip


@dataclass(frozen=True)
class GraderPool:
    """The sandbox pool that runs one kind of grader."""

    judge: Judge
    tier: Tier
    workers: int


def missing_libraries(benchmark: Benchmark) -> str:
    """Return the message about libraries to install before this benchmark can be graded; empty if there are none."""
    installed = versions(GRADERS[benchmark.grading].libraries)
    absent = [name for name, version in installed.items() if version == MISSING]
    if not absent:
        return ""
    needs = f"grading {benchmark.name} needs {', '.join(absent)}: `{install_extra('evaluate')}`"
    if "evalplus" not in absent:
        return needs
    return f"{needs}, then `{pip_install('--no-deps', 'evalplus==0.3.1')}` (without its seventy dependencies, of which none is used)"


@contextmanager
def open_grader(benchmark: Benchmark, workers: int, allow_weak: bool = False) -> Iterator[GraderPool]:
    """Start the sandbox for benchmarks of this kind. Raises `ConfigError` for a missing library, `SandboxUnavailableError`."""
    if message := missing_libraries(benchmark):
        raise ConfigError(message)
    settings = settings_of(benchmark)
    with SandboxPool(settings.limits, workers, allow_weak) as pool:
        yield GraderPool(tiny_suite.CachedJudge(pool) if settings.retry == "never" else pool, pool.tier, workers)


def check_graders(benchmarks: Sequence[Benchmark], allow_weak: bool = False) -> None:
    """Start and end each sandbox that grades them, before hours of generation. Raises as `open_grader`."""
    for benchmark in {settings_of(benchmark).limits: benchmark for benchmark in benchmarks}.values():
        with open_grader(benchmark, 1, allow_weak):
            pass


def grade(job: GradingJob, out: Path, pool: GraderPool, progress: Callable[[int, int], None] = lambda done, of: None) -> dict[str, Any]:
    """Write verdicts into ``out``, and counts and facts into its neighbour ``.json``. Raises `PopuloraError`, also for another file."""
    facts, summary_file = job.facts(), out.with_suffix(".json")
    grades = _load_valid(job, out, summary_file, facts)
    write_file(out, to_lines(grades.values()))
    write_file(summary_file, json_bytes({"facts": facts}))
    threads = ThreadPoolExecutor(2 * pool.workers)  # while some wait for the sandbox, others read and compare
    try:
        for future in as_completed([threads.submit(_grade_item, job, item, pool) for item in job.items if item.id not in grades]):
            _append(future.result(), grades, out)
            progress(len(grades), len(job.items))
    finally:
        threads.shutdown(wait=False, cancel_futures=True)  # after Ctrl-C the pool ends what is running
    if job.settings.retry != "never":
        _retry_failures(job, grades, out, pool)
    ordered = [grades[item.id] for item in job.items]
    counts = _count(ordered)
    machine = {"processor": processor(), "cores": os.cpu_count(), "workers": pool.workers, "sandbox_tier": pool.tier}
    write_file(out, to_lines(ordered))
    write_file(summary_file, json_bytes({**counts, "facts": facts, "machine": machine}))
    return counts


def _load_valid(job: GradingJob, out: Path, summary_file: Path, facts: Mapping[str, Any]) -> dict[str, Grade]:
    """Load the verdicts in ``out`` on these very completions under these facts. Raises `ConfigError` where it is another file."""
    if out == summary_file:
        raise ConfigError(f"--out is '{out}': expected a name that does not end in .json, which is for the counts")
    summary = read_json(summary_file) if summary_file.is_file() else {}
    for path in (out, summary_file):
        begun = path == out and path.is_file() and not path.stat().st_size  # the first of the two files, and then it was stopped
        if path.exists() and not begun and not (path.is_file() and "facts" in summary):
            raise ConfigError(f"'{path}' exists and has no verdicts: expected --out to be a new file, or one that this command wrote")
    if summary.get("facts") != facts:
        return {}
    return {name: grade for name, grade in read_records(out, Grade).items() if grade.completion_sha == _digest(job.texts.get(name))}


def _digest(text: str | None) -> str:
    return "" if text is None else digest(text.encode(errors="surrogatepass"))[:16]


def _retry_failures(job: GradingJob, grades: dict[str, Grade], out: Path, pool: GraderPool) -> None:
    """Grade failures once more, one after the other."""
    for item in job.items:
        first = grades[item.id]
        decided = first.reason == "no_answer" or (first.reason in ("wrong", "wrong_width") and job.settings.retry == "unless_wrong")
        if not (first.retry or first.correct or decided) and first.modes:  # no modes: missing, or too long
            second = _grade_item(job, item, pool)
            _append(replace(second, retry="passed" if second.correct else "failed"), grades, out)


def _append(grade: Grade, grades: dict[str, Grade], out: Path) -> None:
    grades[grade.item_id] = grade
    append(out, grade)


def _grade_item(job: GradingJob, item: Item, pool: GraderPool) -> Grade:
    text, settings = job.texts.get(item.id), job.settings
    if text is None:
        return Grade(item.id, False, "missing")
    if len(text) > LONGEST_COMPLETION:
        return Grade(item.id, False, "too_long", completion_sha=_digest(text))
    options = {"is_solution": job.is_solution} if settings.reads_solutions else {}
    return replace(settings.grade(pool.judge, job.benchmark, item, text, **options), completion_sha=_digest(text))


def _count(grades: Sequence[Grade]) -> dict[str, Any]:
    """Count the correct items, also by extraction mode, and the reasons of the others, most frequent first. Void ones count apart."""
    judged = [grade for grade in grades if not grade.void]
    modes = sorted({name for grade in judged for name in grade.modes})
    reasons = Counter(grade.reason.partition(":")[0] for grade in judged if not grade.correct)
    return {
        "items": len(judged),
        "correct": sum(grade.correct for grade in judged),
        "modes": {name: sum(grade.modes.get(name, False) for grade in judged) for name in modes},
        "void": {grade.item_id: grade.reason for grade in grades if grade.void},
        "missing": [grade.item_id for grade in grades if grade.reason == "missing"],
        "passed_on_retry": [grade.item_id for grade in grades if grade.retry == "passed"],
        "reasons": dict(reasons.most_common()),
    }
