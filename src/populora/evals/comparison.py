"""Compare evaluations item by item: differences with bootstrap intervals, and a paired test for each benchmark.

An arm is one or more models, such as the students of a run. Its score on an item is the share of its models that have it right. All arms
answer the same items, so everything is paired. Intervals cover new items of the kind, not new training seeds.
- Interval: percentile bootstrap of the mean difference over items. For an aggregate, items are drawn within each benchmark.
- Test of one model against one: McNemar's exact test, which is binomial on the items that only one of them has right.
- Test of groups of models: a sign-flip permutation test of the mean difference. Under the null hypothesis an item's two scores may be
  swapped. Shares of correct models have no McNemar table, and counting each model's answer by itself would count every item several times.
- p-values are corrected by Holm's method over everything that one call tests.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from populora.core.errors import ConfigError
from populora.core.rng import stream
from populora.evals.aggregates import aggregate_title, aggregates_over
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.eval_records import PRIMARY, EvalModel, Grade, read_records
from populora.evals.folder import verdict_file
from populora.evals.text_table import ABSENT, TextCell, TextRow, TextTable

Scores = NDArray[np.float64]
SIGNIFICANT, CONFIDENCE, RESAMPLES = 0.05, 0.95, 9999
_BATCH = 500
"""Resamples that are held in memory at once."""


@dataclass(frozen=True)
class ComparedArm:
    """One side of a comparison: by benchmark and item, the share of its ``models`` that have it right in an extraction mode."""

    name: str
    models: int
    scores: Mapping[str, Mapping[str, float]]
    sizes: Mapping[str, int]
    """Items of each benchmark, graded or not."""
    mode: str = PRIMARY


@dataclass(frozen=True)
class Difference:
    """The difference in one column, in points of 100. A benchmark has a test, an aggregate only an interval."""

    arm: str
    against: str
    column: str
    items: int
    """Items that are compared, fewer than ``total`` where not all were graded."""
    total: int
    value: float
    """Per cent of ``arm``; ``baseline`` is that of ``against``."""
    baseline: float
    difference: float
    low: float | None
    """Lower end of the interval; None where all items differ alike, for which the bootstrap has none."""
    high: float | None
    test: str = ""
    p: float | None = None
    adjusted: float | None = None
    """p after Holm's correction."""
    mode: str = PRIMARY
    seed: int = 0


def read_arm(folder: Path, name: str, models: Sequence[EvalModel], sizes: Mapping[str, int], mode: str = PRIMARY) -> ComparedArm:
    """Read the verdicts of these models on the benchmarks in ``sizes``, where any has some. Raises `ConfigError`, `RunDirectoryError`."""
    scores: dict[str, dict[str, float]] = {}
    for benchmark in sizes:
        records = [read_records(verdict_file(folder, benchmark, model.name), Grade) for model in models]
        grades = [{item: grade for item, grade in of_model.items() if not grade.void} for of_model in records]
        if any(grades):
            for model, of_model in zip(models, grades, strict=True):
                _check_items(benchmark, f"{model.name} of '{name}'", of_model, f"{models[0].name} of '{name}'", grades[0])
            scores[benchmark] = {item: fmean(of_model[item].is_correct(mode) for of_model in grades) for item in grades[0]}
    return ComparedArm(name, len(models), scores, sizes, mode)


def compare(arms: Sequence[ComparedArm], seed: int = 0, resamples: int = RESAMPLES) -> list[Difference]:
    """Compare every arm with the first, on each common benchmark and on the aggregates. Raises `ConfigError` where they do not match."""
    names = [arm.name for arm in arms]
    if not 1 < len(names) == len(set(names)):
        raise ConfigError(f"expected at least two evaluations of different names to compare, got {names}. Name each once.")
    differences = [difference for arm in arms[1:] for difference in _compare_two(arms[0], arm, seed, resamples)]
    adjusted = iter(holm([difference.p for difference in differences if difference.p is not None]))
    return [item if item.p is None else replace(item, adjusted=next(adjusted)) for item in differences]


def _compare_two(first: ComparedArm, arm: ComparedArm, seed: int, resamples: int) -> list[Difference]:
    common = [name for name in BENCHMARKS if name in first.scores and name in arm.scores]
    if not common:
        raise ConfigError(
            f"'{arm.name}' and '{first.name}' have no benchmark in common: expected verdicts of both on one at least, "
            f"got {', '.join(arm.scores) or 'none'} and {', '.join(first.scores) or 'none'}. Grade both on the same suite."
        )
    scores: dict[str, tuple[Scores, Scores]] = {}
    for name in common:
        _check_items(name, f"'{arm.name}'", arm.scores[name], f"'{first.name}'", first.scores[name])
        items = sorted(first.scores[name])
        scores[name] = np.array([arm.scores[name][item] for item in items]), np.array([first.scores[name][item] for item in items])
    aggregates = aggregates_over(common)
    differences: list[Difference] = []
    for column, names in {**{name: (name,) for name in common}, **aggregates}.items():
        sizes, pairs = [arm.sizes[name] for name in names], [scores[name] for name in names]
        if column in aggregates and [len(values) for values, _ in pairs] != sizes:
            continue
        ends = bootstrap_interval([a - b for a, b in pairs], stream(seed, "compare", arm.name, column, "bootstrap"), resamples)
        low, high = (100 * ends[0], 100 * ends[1]) if ends else (None, None)
        value, baseline = (100 * float(_mean_of_means(*side)) for side in zip(*pairs, strict=True))
        test, p = "", None
        if column in common:
            test, p = paired_test(*pairs[0], arm.models == first.models == 1, stream(seed, "compare", arm.name, column, "test"), resamples)
        counts = sum(len(values) for values, _ in pairs), sum(sizes)
        values = (value, baseline, value - baseline, low, high, test, p)
        differences.append(Difference(arm.name, first.name, column, *counts, *values, mode=arm.mode, seed=seed))
    return differences


def bootstrap_interval(differences: Sequence[Scores], draws: np.random.Generator, resamples: int) -> tuple[float, float] | None:
    """Bootstrap the mean over benchmarks of the mean over items; None where all items are alike, and where one has a single item."""
    if any(values.size < 2 for values in differences) or all(np.ptp(values) == 0 for values in differences):
        return None
    ends = stats.bootstrap(
        list(differences), _mean_of_means, n_resamples=resamples, confidence_level=CONFIDENCE, method="percentile", vectorized=True,
        batch=_BATCH, rng=draws,
    ).confidence_interval  # fmt: skip
    return float(ends.low), float(ends.high)


def paired_test(scores: Scores, other: Scores, single: bool, draws: np.random.Generator, resamples: int = RESAMPLES) -> tuple[str, float]:
    """Test whether the scores are equal; returns the test's name and two-sided p. ``single`` means one model against one."""
    difference = scores - other
    if single:
        gained, lost = int((difference > 0).sum()), int((difference < 0).sum())
        return "McNemar", float(stats.binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0
    if difference.size < 2:
        return "sign-flip", 1.0  # one item rejects nothing, and scipy does not accept it
    result = stats.permutation_test(
        (difference,), _mean_of_means, permutation_type="samples", n_resamples=resamples, vectorized=True, batch=_BATCH, rng=draws
    )
    return "sign-flip", float(result.pvalue)


def holm(p: Sequence[float]) -> list[float]:
    """Adjust p-values by Holm's step-down method; the order is kept."""
    order = np.argsort(p, kind="stable")
    scaled = np.asarray(p, np.float64)[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted.tolist()


def _mean_of_means(*samples: Any, axis: int = -1) -> Any:
    """Average the benchmarks' means: all count the same, whatever their number of items."""
    return sum(sample.mean(axis=axis) for sample in samples) / len(samples)


def _check_items(benchmark: str, name: str, items: Iterable[str], other: str, other_items: Iterable[str]) -> None:
    items, other_items = set(items), set(other_items)
    for lacking, missing, having in ((name, other_items - items, other), (other, items - other_items, name)):
        if missing:
            examples = ", ".join(sorted(missing)[:3]) + (", …" if len(missing) > 3 else "")
            raise ConfigError(
                f"{benchmark}: {lacking} has no verdict on {len(missing)} of the items that {having} has ({examples}). "
                f"Grade them, or name the other benchmarks by --suite to leave {benchmark} out of the comparison."
            )


def comparison_tables(differences: Iterable[Difference], more_footnotes: Sequence[str] = ()) -> list[TextTable]:
    """Build a table for each arm: both scores, the difference with its interval, and the tests. ``more_footnotes`` come last."""
    return [_comparison_table(list(of_arm), more_footnotes) for _, of_arm in groupby(differences, lambda difference: difference.arm)]


def _comparison_table(differences: Sequence[Difference], more_footnotes: Sequence[str]) -> TextTable:
    first = differences[0]
    aggregates = aggregates_over(item.column for item in differences if item.p is not None)
    tests = " and ".join(dict.fromkeys(item.test for item in differences if item.test))
    absent = [name for name in aggregates if name not in {item.column for item in differences}]
    footnotes = [
        f"Points: {first.arm} minus {first.against}, paired item by item.",
        f"Extraction mode: {first.mode}" + ("." if first.mode == PRIMARY else "; benchmarks without it count their primary mode."),
        f"The interval is a bootstrap over items (seed {first.seed}): it says nothing about other training seeds.",
        f"Tests: {tests}, two-sided, with Holm's correction over all arms of the command. Bold: p below {SIGNIFICANT} after it.",
        *([f"No {', '.join(absent)}: a benchmark of it is graded only in part."] if absent else []),
        *more_footnotes,
    ]
    titles = {name: benchmark.title for name, benchmark in BENCHMARKS.items()}
    titles |= {name: aggregate_title(name, averaged) for name, averaged in aggregates.items()}
    blocks = [tuple(_row(item, titles) for item in kind) for _, kind in groupby(differences, lambda item: item.p is None)]
    groups = (("", 1), ("Pass@1 (%)", 2), ("Points", 2), (tests, 2))
    columns = ("items", first.against, first.arm, "difference", f"{100 * CONFIDENCE:g} % interval", "p", "p (Holm)")
    return TextTable(f"{first.arm} against {first.against}", groups, columns, tuple(blocks), tuple(footnotes))


def _row(difference: Difference, titles: Mapping[str, str]) -> TextRow:
    ends = ABSENT if difference.low is None else f"[{difference.low:+.1f}, {difference.high:+.1f}]"
    items = str(difference.items) if difference.items == difference.total else f"{difference.items}/{difference.total}"
    bold = difference.adjusted is not None and difference.adjusted < SIGNIFICANT
    scores = [TextCell(text) for text in (items, f"{difference.baseline:.1f}", f"{difference.value:.1f}")]
    statistics = [TextCell(text) for text in (ends, _p_value(difference.p), _p_value(difference.adjusted))]
    return TextRow(titles[difference.column], (*scores, TextCell(f"{difference.difference:+.1f}", bold), *statistics))


def _p_value(value: float | None) -> str:
    if value is None:
        return ABSENT
    return "<0.001" if value < 0.001 else f"{value:.3f}"
