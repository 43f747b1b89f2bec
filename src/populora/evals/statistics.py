"""Statistics of paired scores: two arms answered the same items, and each item has a score in [0, 1] from either.

- Interval: percentile bootstrap of the mean difference over items. For an aggregate, items are drawn within each benchmark.
- Test of one model against one: McNemar's exact test, which is binomial on the items that only one of them has right.
- Test of groups of models: a sign-flip permutation test of the mean difference. Under the null hypothesis an item's two scores may be
  swapped. Shares of correct models have no McNemar table, and counting each model's answer by itself would count every item several times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Scores = NDArray[np.float64]
"""A value in [0, 1] for each item."""
RESAMPLES = 9999
CONFIDENCE = 0.95
_BATCH = 500
"""Resamples that are held in memory at once."""


def interval(differences: Sequence[Scores], draws: np.random.Generator, confidence: float, resamples: int) -> tuple[float, float] | None:
    """Bootstrap the mean over benchmarks of the mean over items; returns the ends of the interval.

    Returns None where all items of each benchmark are alike, and where one has a single item.
    """
    if any(one.size < 2 for one in differences) or all(np.ptp(one) == 0 for one in differences):
        return None
    ends = stats.bootstrap(
        list(differences), mean_of_means, n_resamples=resamples, confidence_level=confidence, method="percentile", vectorized=True,
        batch=_BATCH, rng=draws,
    ).confidence_interval  # fmt: skip
    return float(ends.low), float(ends.high)


def paired_test(scores: Scores, other: Scores, single: bool, draws: np.random.Generator, resamples: int = RESAMPLES) -> tuple[str, float]:
    """Name and two-sided p-value of the test of equal scores; ``single`` means one model against one."""
    difference = scores - other
    if single:
        gained, lost = int((difference > 0).sum()), int((difference < 0).sum())
        return "McNemar", float(stats.binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0
    if difference.size < 2:
        return "sign-flip", 1.0  # either sign is as far from zero, and scipy takes no single item
    result = stats.permutation_test(
        (difference,), mean_of_means, permutation_type="samples", n_resamples=resamples, vectorized=True, batch=_BATCH, rng=draws
    )
    return "sign-flip", float(result.pvalue)


def holm(p: Sequence[float]) -> list[float]:
    """Adjust p-values by Holm's step-down method; the order is kept."""
    order = np.argsort(p, kind="stable")
    scaled = np.asarray(p, np.float64)[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted.tolist()


def mean_of_means(*samples: Any, axis: int = -1) -> Any:
    """The mean over benchmarks of each one's mean: all count the same, whatever their number of items."""
    return sum(one.mean(axis=axis) for one in samples) / len(samples)
