"""Compare evaluations item by item: differences with bootstrap intervals, and a paired test for each benchmark.

An arm is one or more models, such as the students of a run; its score on an item is the share of its models that have it right. All arms
answer the same items, so everything is paired. Intervals and tests are those of `populora.evals.statistics`; p-values are corrected by
Holm's method over everything that one call tests.

All of it is about items, that is, about these models on other items of the kind. It says nothing about other training seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from populora.core.errors import ConfigError
from populora.core.rng import stream
from populora.evals.aggregates import aggregate_title, aggregates_over
from populora.evals.benchmarks import BENCHMARKS, differs_in_size, release_of
from populora.evals.folder import verdict_file
from populora.evals.records import EvalModel, read_grades
from populora.evals.scores import PRIMARY, is_correct
from populora.evals.statistics import CONFIDENCE, RESAMPLES, Scores, holm, interval, mean_of_means, paired_test
from populora.evals.text_table import ABSENT, TextCell, TextRow, TextTable

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class ComparedArm:
    """One side of a comparison: by benchmark and model, whether each item is correct in an extraction mode."""

    name: str
    answers: Mapping[str, Mapping[str, Mapping[str, bool]]]
    items: Mapping[str, int]
    """The size of each benchmark."""
    mode: str = PRIMARY


@dataclass(frozen=True)
class Difference:
    """The difference in one column, in points of 100. A benchmark has a test, an aggregate only an interval."""

    arm: str
    against: str
    column: str
    items: int
    of: int
    """Items of the benchmarks; fewer are compared where they were not all graded."""
    value: float
    """Per cent of ``arm``."""
    other: float
    """Per cent of ``against``."""
    difference: float
    low: float | None
    high: float | None
    """Ends of the interval; None where all items differ alike, for which the bootstrap has none."""
    test: str = ""
    p: float | None = None
    adjusted: float | None = None
    """p after Holm's correction."""
    mode: str = PRIMARY
    seed: int = 0
    """Seed of the resampling."""


def read_arm(folder: Path, name: str, models: Sequence[EvalModel], items: Mapping[str, int], mode: str = PRIMARY) -> ComparedArm:
    """Read the verdicts of these models on the benchmarks in ``items``, where any of them has some. Raises `RunDirectoryError`."""
    grades = {one: {model.name: read_grades(verdict_file(folder, one, model.name)) for model in models} for one in items}
    answers = {
        benchmark: {model: {item: is_correct(grade, mode) for item, grade in own.items()} for model, own in by_model.items()}
        for benchmark, by_model in grades.items()
        if any(by_model.values())
    }
    return ComparedArm(name, answers, items, mode)


def compare(arms: Sequence[ComparedArm], seed: int = 0, confidence: float = CONFIDENCE, resamples: int = RESAMPLES) -> list[Difference]:
    """Compare every arm with the first, on each common benchmark and on Code, Math and All over those that are graded in full.

    Random draws come from streams named by arm and column. Raises `ConfigError` for fewer than two arms, arms of one name, arms without a
    common benchmark, items that do not match, and a confidence outside (0, 1).
    """
    names = [arm.name for arm in arms]
    if len(set(names)) < 2 or len(set(names)) < len(names):
        raise ConfigError(f"expected at least two evaluations of different names to compare, got {names}. Name each once.")
    if not (0 < confidence < 1 and resamples > 0):
        raise ConfigError(f"expected a confidence between 0 and 1 and at least one resample, got {confidence} and {resamples}.")
    differences = [one for arm in arms[1:] for one in _compare_two(arms[0], arm, seed, confidence, resamples)]
    adjusted = iter(holm([one.p for one in differences if one.p is not None]))
    return [one if one.p is None else replace(one, adjusted=next(adjusted)) for one in differences]


def _compare_two(first: ComparedArm, arm: ComparedArm, seed: int, confidence: float, resamples: int) -> list[Difference]:
    common = [name for name in BENCHMARKS if name in first.answers and name in arm.answers]
    if not common:
        raise ConfigError(
            f"'{arm.name}' and '{first.name}' have no benchmark in common: expected verdicts of both on one at least, "
            f"got {', '.join(arm.answers) or 'none'} and {', '.join(first.answers) or 'none'}. Grade both on the same suite."
        )
    scores = {name: _scores(first, arm, name) for name in common}
    aggregates = aggregates_over(name for name in common if not differs_in_size(name, arm.items[name]))
    differences: list[Difference] = []
    for column, names in {**{name: (name,) for name in common}, **aggregates}.items():
        of = [arm.items[name] for name in names]
        pairs = [scores[name] for name in names]
        if column in aggregates and [len(values) for values, _ in pairs] != of:
            continue
        draws = stream(seed, "compare", arm.name, column, "bootstrap")
        ends = interval([a - b for a, b in pairs], draws, confidence, resamples)
        low, high = (100 * ends[0], 100 * ends[1]) if ends else (None, None)
        value, other = (100 * float(mean_of_means(*side)) for side in zip(*pairs, strict=True))
        items, test, p = sum(len(values) for values, _ in pairs), "", None
        if column in common:
            single = len(arm.answers[column]) == len(first.answers[column]) == 1
            test, p = paired_test(*pairs[0], single, stream(seed, "compare", arm.name, column, "test"), resamples)
        differences.append(
            Difference(
                arm.name, first.name, column, items, sum(of), value, other, value - other, low, high, test, p, mode=arm.mode, seed=seed
            )
        )
    return differences


def _scores(first: ComparedArm, arm: ComparedArm, benchmark: str) -> tuple[Scores, Scores]:
    """The share of correct models on each item, of ``arm`` and of ``first``. Raises `ConfigError` for items that do not match."""
    reference, expected = next(iter(first.answers[benchmark].items()))
    for side in (first, arm):
        for model, answers in side.answers[benchmark].items():
            _check_items(benchmark, f"{model} of '{side.name}'", answers, f"{reference} of '{first.name}'", expected)
    first_scores, arm_scores = (
        np.array([[answers[item] for item in sorted(expected)] for answers in side.answers[benchmark].values()], np.float64).mean(axis=0)
        for side in (first, arm)
    )
    return arm_scores, first_scores


def _check_items(benchmark: str, name: str, items: Iterable[str], other: str, other_items: Iterable[str]) -> None:
    items, other_items = set(items), set(other_items)
    for lacking, missing, having in ((name, other_items - items, other), (other, items - other_items, name)):
        if missing:
            some = ", ".join(sorted(missing)[:3]) + (", …" if len(missing) > 3 else "")
            raise ConfigError(
                f"{benchmark}: {lacking} has no verdict on {len(missing)} of the items that {having} has ({some}). "
                f"Grade them, or name the other benchmarks by --suite to leave {benchmark} out of the comparison."
            )


def comparison_tables(differences: Iterable[Difference], notes: Sequence[str] = (), confidence: float = CONFIDENCE) -> list[TextTable]:
    """Build a table for each arm: both scores, the difference with its interval, and the tests. ``notes`` are more footnotes."""
    return [_comparison_table(list(own), notes, confidence) for _, own in groupby(differences, lambda one: one.arm)]


def _comparison_table(differences: Sequence[Difference], notes: Sequence[str], confidence: float) -> TextTable:
    first = differences[0]
    sizes = {one.column: one.of for one in differences if one.p is not None}
    aggregates = aggregates_over(name for name, items in sizes.items() if not differs_in_size(name, items))
    tests = " and ".join(dict.fromkeys(one.test for one in differences if one.test))
    absent = [name for name in aggregates if name not in {one.column for one in differences}]
    releases = {name: release for name, items in sizes.items() if (release := release_of(BENCHMARKS[name], items))}
    footnotes = [
        f"Points: {first.arm} minus {first.against}, paired item by item.",
        f"Extraction mode: {first.mode}" + ("." if first.mode == PRIMARY else "; benchmarks without it count their primary mode."),
        f"The interval is a bootstrap over items (seed {first.seed}): it says nothing about other training seeds.",
        f"Tests: {tests}, two-sided, with Holm's correction over this comparison. Bold: p below {SIGNIFICANT} after it.",
        *([f"No {', '.join(absent)}: a benchmark of it is graded only in part."] if absent else []),
        *(f"{BENCHMARKS[name].title} is {release}." for name, release in releases.items()),
        *notes,
    ]
    titles = {name: aggregate_title(name, over) for name, over in aggregates.items()}
    blocks = [tuple(_row(one, titles) for one in own) for _, own in groupby(differences, lambda one: one.p is None)]
    groups = (("", 1), ("Pass@1 (%)", 2), ("Points", 2), (tests, 2))
    columns = ("items", first.against, first.arm, "difference", f"{100 * confidence:g} % interval", "p", "p (Holm)")
    return TextTable(f"{first.arm} against {first.against}", groups, columns, tuple(blocks), tuple(footnotes))


def _row(one: Difference, titles: Mapping[str, str]) -> TextRow:
    label = titles[one.column] if one.column in titles else BENCHMARKS[one.column].title
    ends = ABSENT if one.low is None else f"[{one.low:+.1f}, {one.high:+.1f}]"
    items = str(one.items) if one.items == one.of else f"{one.items}/{one.of}"
    bold = one.adjusted is not None and one.adjusted < SIGNIFICANT
    before = [TextCell(text) for text in (items, f"{one.other:.1f}", f"{one.value:.1f}")]
    after = [TextCell(text) for text in (ends, _p_value(one.p), _p_value(one.adjusted))]
    return TextRow(label, (*before, TextCell(f"{one.difference:+.1f}", bold), *after))


def _p_value(value: float | None) -> str:
    if value is None:
        return ABSENT
    return "<0.001" if value < 0.001 else f"{value:.3f}"
