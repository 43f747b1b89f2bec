"""From the verdicts of an evaluation to scores: who got how many items of which benchmark right, in each reading.

An evaluation folder keeps ``verdicts/<benchmark>/<source>.jsonl``, a `Grade` a line. A score knows how many items it is over: what was
graded only in part is shown as that, and never enters a mean (`populora.evals.tables`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from populora.core.errors import ConfigError, RunDirectoryError
from populora.evals.benchmarks import benchmark
from populora.evals.records import Grade, read_grades

SourceRole = Literal["base", "agent", "teacher", "student", "adapter"]
HEADLINE = "headline"
"""The reading that a benchmark's published score counts (`Benchmark.headline`): `Grade.correct`."""


@dataclass(frozen=True)
class Source:
    """Who answered: the bare base, a member of a run, or an adapter that was given by itself."""

    name: str
    role: SourceRole


@dataclass(frozen=True)
class Score:
    """One source on one benchmark, in items."""

    source: str
    benchmark: str
    correct: int
    graded: int
    items: int
    """Of the whole benchmark, as it is in this evaluation's data."""
    readings: Mapping[str, int]
    """How many are right in each reading that the grader reported."""

    @property
    def complete(self) -> bool:
        """Whether every item has a verdict."""
        return self.graded == self.items

    @property
    def rate(self) -> float:
        """Per cent right of what was graded. Raises ``ZeroDivisionError`` where that is nothing."""
        return 100 * self.correct / self.graded


@dataclass(frozen=True)
class Evaluation:
    """The scores of one evaluation: of each source on each benchmark that was asked for, graded or not."""

    name: str
    sources: tuple[Source, ...]
    scores: tuple[Score, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Sources and benchmarks that were asked for and could not be had, with the reason."""
    steps: Mapping[str, int] = field(default_factory=dict)
    """Of members, by source: the step of their run."""

    def of(self, source: str) -> dict[str, Score]:
        """The scores of a source by benchmark, where anything was graded."""
        return {score.benchmark: score for score in self.scores if score.source == source and score.graded}


def read_evaluation(folder: Path, name: str, sources: Sequence[Source], items: Mapping[str, int]) -> Evaluation:
    """The scores in ``folder``. ``items``: size of each benchmark that was asked for; one without verdicts has scores of 0 graded.

    Raises `ConfigError` for an unknown benchmark or a source named twice, `RunDirectoryError` for verdicts that cannot be read.
    """
    _check_once([source.name for source in sources], name)
    scores = [
        score_of(source.name, benchmark(one).name, read_grades(verdict_file(folder, one, source.name)).values(), count)
        for source in sources
        for one, count in items.items()
    ]
    return Evaluation(name, tuple(sources), tuple(scores))


def verdict_file(folder: Path, benchmark: str, source: str) -> Path:
    """Where an evaluation keeps the verdicts of a source on a benchmark."""
    return folder / "verdicts" / benchmark / f"{source}.jsonl"


def score_of(source: str, benchmark: str, grades: Iterable[Grade], items: int) -> Score:
    """Count verdicts. Raises `RunDirectoryError` if there are more than the benchmark has items."""
    grades = list(grades)
    if len(grades) > items:
        raise RunDirectoryError(
            f"{benchmark}: expected verdicts on at most {items} items, '{source}' has {len(grades)}. "
            "They were graded with another release of the benchmark: grade them again."
        )
    names = dict.fromkeys(name for grade in grades for name in grade.readings)
    readings = {name: sum(right(grade, name) for grade in grades) for name in names}
    return Score(source, benchmark, sum(grade.correct for grade in grades), len(grades), items, readings)


def right(grade: Grade, reading: str = HEADLINE) -> bool:
    """Whether it is right in a reading; in one that its grader does not know, what its headline says."""
    return grade.readings.get(reading, grade.correct)


def read_as(evaluation: Evaluation, reading: str) -> Evaluation:
    """The same evaluation counted in another reading; where a benchmark does not have it, its headline stands."""
    scores = (replace(score, correct=score.readings.get(reading, score.correct)) for score in evaluation.scores)
    return replace(evaluation, scores=tuple(scores))


def readings_of(evaluations: Iterable[Evaluation]) -> list[str]:
    """Names of all readings that were reported, ``strict`` and ``lenient`` first."""
    found = {name for evaluation in evaluations for score in evaluation.scores for name in score.readings}
    return sorted(found, key=lambda name: (name != "strict", name != "lenient", name))


def _check_once(names: Sequence[str], evaluation: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"evaluation '{evaluation}': expected each source once, got {', '.join(twice)} more than once. Name each once.")
