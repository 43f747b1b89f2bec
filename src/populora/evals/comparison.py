"""Several evaluations compared item by item: differences with bootstrap intervals, and a paired test for each benchmark.

An arm is one or more sources (the students of a run, its seeds, a base); its score on an item is the share of its sources that have it
right. Arms answer the same items, so everything is paired: item by item, the other arm's score minus the first one's.
Intervals and tests are those of `populora.evals.paired`; p-values are corrected by Holm's method over everything that one call tests.

All of it is about items: how sure a difference is for *these* sources on other items of the kind. What another training seed would give it
cannot say; for that, train several and look at the spread of their scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from populora.core.errors import ConfigError
from populora.core.rng import stream
from populora.evals.benchmarks import BENCHMARKS, other_size
from populora.evals.paired import CONFIDENCE, RESAMPLES, Scores, holm, interval, mean_of_means, paired_test
from populora.evals.results import HEADLINE, Source, read_grades, right, verdict_file
from populora.evals.tables import averaged


@dataclass(frozen=True)
class Arm:
    """One side of a comparison. ``answers``: by benchmark and source, whether each item is right, in a ``reading``; ``items``: size of each
    benchmark."""

    name: str
    answers: Mapping[str, Mapping[str, Mapping[str, bool]]]
    items: Mapping[str, int]
    reading: str = HEADLINE


@dataclass(frozen=True)
class Difference:
    """Of one column, in points of 100. A benchmark has a test, an aggregate only an interval."""

    arm: str
    against: str
    column: str
    items: int
    of: int
    """Items of the benchmarks; fewer were compared where they were not all graded."""
    value: float
    """Of ``arm``, per cent."""
    other: float
    """Of ``against``."""
    difference: float
    low: float | None
    high: float | None
    """Ends of the interval; none where all items differ alike, for then the bootstrap knows nothing."""
    test: str = ""
    p: float | None = None
    adjusted: float | None = None
    """By Holm's method."""
    reading: str = HEADLINE
    seed: int = 0
    """Of the resampling."""


def read_arm(folder: Path, name: str, sources: Sequence[Source], items: Mapping[str, int], reading: str = HEADLINE) -> Arm:
    """The verdicts of these sources in an evaluation folder, on the benchmarks in ``items`` on which any of them has some.

    Raises `RunDirectoryError` for verdicts that cannot be read.
    """
    grades = {one: {source.name: read_grades(verdict_file(folder, one, source.name)) for source in sources} for one in items}
    answers = {
        one: {source: {item: right(grade, reading) for item, grade in given.items()} for source, given in of_benchmark.items()}
        for one, of_benchmark in grades.items()
        if any(of_benchmark.values())
    }
    return Arm(name, answers, items, reading)


def compare(arms: Sequence[Arm], seed: int = 0, confidence: float = CONFIDENCE, resamples: int = RESAMPLES) -> list[Difference]:
    """Every arm against the first, on each benchmark that both have and on Code, Math and All over those of them that are graded in full.
    A LiveCodeBench that is not the paper's release is in none of these three.

    Draws come from streams named by arm and column. Raises `ConfigError` for fewer than two arms, arms of one name, arms without a common
    benchmark, items that do not match, and a confidence outside (0, 1).
    """
    _check(arms, confidence, resamples)
    found = [one for arm in arms[1:] for one in _against(arms[0], arm, seed, confidence, resamples)]
    tested = [one for one in found if one.p is not None]
    adjusted = dict(zip(map(id, tested), holm([one.p for one in tested if one.p is not None]), strict=True))
    return [replace(one, adjusted=adjusted.get(id(one))) for one in found]


def _against(first: Arm, arm: Arm, seed: int, confidence: float, resamples: int) -> list[Difference]:
    common = [name for name in BENCHMARKS if name in first.answers and name in arm.answers]
    if not common:
        raise ConfigError(
            f"'{arm.name}' and '{first.name}' have no benchmark in common: expected verdicts of both on one at least, "
            f"got {', '.join(arm.answers) or 'none'} and {', '.join(first.answers) or 'none'}. Grade both on the same suite."
        )
    scores = {name: _scores(first, arm, name) for name in common}
    aggregates = averaged(name for name in common if not other_size(name, arm.items[name]))
    over = {**{name: (name,) for name in common}, **aggregates}
    differences: list[Difference] = []
    for column, names in over.items():
        sizes = [arm.items[name] for name in names]
        pairs = [scores[name] for name in names]
        if column in aggregates and [len(own) for own, _ in pairs] != sizes:
            continue
        ends = interval([a - b for a, b in pairs], stream(seed, "compare", arm.name, column, "bootstrap"), confidence, resamples)
        one = _difference(first, arm, column, pairs, sum(sizes), ends)
        if column in common:
            single = len(arm.answers[column]) == len(first.answers[column]) == 1
            draws = stream(seed, "compare", arm.name, column, "test")
            test, p = paired_test(*pairs[0], single, draws, resamples)
            one = replace(one, test=test, p=p)
        differences.append(replace(one, reading=arm.reading, seed=seed))
    return differences


def _difference(
    first: Arm, arm: Arm, column: str, pairs: Sequence[tuple[Scores, Scores]], of: int, ends: tuple[float, float] | None
) -> Difference:
    value, other = (100 * float(mean_of_means(*side)) for side in zip(*pairs, strict=True))
    low, high = (100 * ends[0], 100 * ends[1]) if ends else (None, None)
    return Difference(arm.name, first.name, column, sum(len(own) for own, _ in pairs), of, value, other, value - other, low, high)


def _scores(first: Arm, arm: Arm, benchmark: str) -> tuple[Scores, Scores]:
    """By item, the share of sources that are right: of ``arm`` and of ``first``. Raises `ConfigError` for items that do not match."""
    reference, given = next(iter(first.answers[benchmark].items()))
    items = sorted(given)
    for side in (first, arm):
        for source, own in side.answers[benchmark].items():
            _check_items(benchmark, f"{source} of '{side.name}'", own, f"{reference} of '{first.name}'", given)
    return _shares(arm.answers[benchmark], items), _shares(first.answers[benchmark], items)


def _shares(answers: Mapping[str, Mapping[str, bool]], items: Sequence[str]) -> Scores:
    return np.array([[own[item] for item in items] for own in answers.values()], np.float64).mean(axis=0)


def _check_items(benchmark: str, name: str, own: Iterable[str], other: str, given: Iterable[str]) -> None:
    own, given = set(own), set(given)
    for who, missing, whose in ((name, given - own, other), (other, own - given, name)):
        if missing:
            some = ", ".join(sorted(missing)[:3]) + (", …" if len(missing) > 3 else "")
            raise ConfigError(
                f"{benchmark}: {who} has no verdict on {len(missing)} of the items that {whose} has ({some}). "
                f"Grade them, or name the other benchmarks by --suite to leave {benchmark} out of the comparison."
            )


def _check(arms: Sequence[Arm], confidence: float, resamples: int) -> None:
    names = [arm.name for arm in arms]
    if len(set(names)) < 2 or len(set(names)) < len(names):
        raise ConfigError(f"expected at least two evaluations of different names to compare, got {names}. Name each once.")
    if not (0 < confidence < 1 and resamples > 0):
        raise ConfigError(f"expected a confidence between 0 and 1 and at least one resample, got {confidence} and {resamples}.")
