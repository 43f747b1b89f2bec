"""Interleaved timing: every round runs all cases once, each round beginning with another, so that what disturbs one disturbs its
neighbours. A time is CPU seconds of this process (one thread); a ratio is the median over rounds of the ratio within a round."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

Case = Callable[[], object]
Times = dict[str, list[float]]
"""Seconds of each round, by case."""


def interleaved(cases: Mapping[str, Case], rounds: int) -> Times:
    """Seconds of each case in each of ``rounds`` rounds, after one round that is not counted."""
    names = list(cases)
    for case in cases.values():
        case()
    times: Times = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            gc.collect()
            started = time.process_time()
            cases[name]()
            times[name].append(time.process_time() - started)
    return times


def ratio(times: Times, above: str, below: str) -> dict[str, float]:
    """Median, smallest and largest ratio of two cases within a round."""
    return spread([a / b for a, b in zip(times[above], times[below], strict=True)])


def spread(found: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest."""
    return {"median": round(statistics.median(found), 3), "min": round(min(found), 3), "max": round(max(found), 3)}


def medians(times: Times) -> dict[str, float]:
    """Median milliseconds by case."""
    return {name: round(1000 * statistics.median(values), 2) for name, values in times.items()}
