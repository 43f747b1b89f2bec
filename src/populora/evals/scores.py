"""Scores of an evaluation, counted from its verdicts. A score knows its number of items: one that is graded in part never enters a mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from populora.core.errors import RunDirectoryError
from populora.evals.records import EvalModel, Grade

PRIMARY = "primary"
"""The extraction mode of a benchmark's published score (`Benchmark.primary`): `Grade.correct`."""


@dataclass(frozen=True)
class Score:
    """One model on one benchmark, in items. ``items`` is the size of the benchmark in this evaluation's data."""

    model: str
    benchmark: str
    correct: int
    graded: int
    items: int
    modes: Mapping[str, int]
    """Correct items in each extraction mode."""

    @property
    def complete(self) -> bool:
        """Whether every item has a verdict."""
        return self.graded == self.items

    @property
    def rate(self) -> float:
        """Per cent correct of the graded items. Raises ``ZeroDivisionError`` for none."""
        return 100 * self.correct / self.graded


@dataclass(frozen=True)
class Evaluation:
    """The scores of one evaluation, for every model on every benchmark, graded or not."""

    name: str
    models: tuple[EvalModel, ...]
    scores: tuple[Score, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Benchmarks that could not be evaluated, with the reason."""

    def scores_of(self, model: str) -> dict[str, Score]:
        """The scores of a model by benchmark, where anything was graded."""
        return {score.benchmark: score for score in self.scores if score.model == model and score.graded}


def score_grades(model: str, benchmark: str, grades: Iterable[Grade], items: int) -> Score:
    """Count verdicts. Raises `RunDirectoryError` if there are more than the benchmark has items."""
    grades = list(grades)
    if len(grades) > items:
        raise RunDirectoryError(
            f"{benchmark}: expected verdicts on at most {items} items, '{model}' has {len(grades)}. "
            "They were graded with another release of the benchmark: grade them again."
        )
    names = dict.fromkeys(name for grade in grades for name in grade.modes)
    modes = {name: sum(is_correct(grade, name) for grade in grades) for name in names}
    return Score(model, benchmark, sum(grade.correct for grade in grades), len(grades), items, modes)


def is_correct(grade: Grade, mode: str = PRIMARY) -> bool:
    """Whether the completion is correct in an extraction mode; the primary one replaces a mode that its grader does not have."""
    return grade.modes.get(mode, grade.correct)


def with_mode(evaluation: Evaluation, mode: str) -> Evaluation:
    """Count the evaluation in another extraction mode; the primary one replaces it for benchmarks that do not have it."""
    scores = (replace(score, correct=score.modes.get(mode, score.correct)) for score in evaluation.scores)
    return replace(evaluation, scores=tuple(scores))


def modes_of(evaluations: Iterable[Evaluation]) -> list[str]:
    """The names of all reported extraction modes, ``strict`` and ``lenient`` first."""
    names = {name for evaluation in evaluations for score in evaluation.scores for name in score.modes}
    return sorted(names, key=lambda name: (name != "strict", name != "lenient", name))
