"""Statistics of paired scores: two arms answered the same items, and each item has a score in [0, 1] from either.

- Interval: percentile bootstrap of the mean difference over items; for an aggregate, items are drawn within each benchmark. BCa intervals
  were tried: at 30 to 500 items they cover no better, and they are undefined where all items differ alike.
- Test, one source against one: McNemar's exact test, which is binomial on the items that only one of them has right.
- Test, groups of sources: a sign-flip permutation test of the mean difference. Under the null hypothesis an item's two scores may be
  swapped. Shares have no McNemar table, and to take each source's answer for an item of its own would count every item several times. For
  single sources it is McNemar's test again, but for its random draws.
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
    """Ends of the bootstrap interval of the mean over benchmarks of the mean over items; nothing where all items of each are alike, or
    one has a single item."""
    if any(one.size < 2 for one in differences) or all(np.ptp(one) == 0 for one in differences):
        return None
    found = stats.bootstrap(
        list(differences), mean_of_means, n_resamples=resamples, confidence_level=confidence, method="percentile", vectorized=True,
        batch=_BATCH, rng=draws,
    ).confidence_interval  # fmt: skip
    return float(found.low), float(found.high)


def paired_test(own: Scores, other: Scores, single: bool, draws: np.random.Generator, resamples: int = RESAMPLES) -> tuple[str, float]:
    """Name and two-sided p-value of the test of equal scores; ``single``: of one source against one."""
    difference = own - other
    if single:
        only_own, only_other = int((difference > 0).sum()), int((difference < 0).sum())
        return "McNemar", float(stats.binomtest(only_own, only_own + only_other).pvalue) if only_own + only_other else 1.0
    if difference.size < 2:
        return "sign-flip", 1.0  # either sign is as far from zero; scipy takes no single item
    found = stats.permutation_test(
        (difference,), mean_of_means, permutation_type="samples", n_resamples=resamples, vectorized=True, batch=_BATCH, rng=draws
    )
    return "sign-flip", float(found.pvalue)


def holm(p: Sequence[float]) -> list[float]:
    """p-values adjusted by Holm's step-down method, in the order given."""
    order = np.argsort(p, kind="stable")
    scaled = np.asarray(p, np.float64)[order] * np.arange(len(p), 0, -1)
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted.tolist()


def mean_of_means(*samples: Any, axis: int = -1) -> Any:
    """Each benchmark counts the same, however many items it has."""
    return sum(one.mean(axis=axis) for one in samples) / len(samples)
