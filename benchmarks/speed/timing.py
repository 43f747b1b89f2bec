"""Interleaved timing: every round runs all cases once, each round beginning with another, so that what disturbs one disturbs its
neighbours. A time is CPU seconds of this process (one thread) unless another clock is given; a ratio is the median over rounds of the
ratio within a round."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

Case = Callable[[], object]
Times = dict[str, list[float]]
"""Seconds of each round, by case."""


def interleaved(cases: Mapping[str, Case], rounds: int, clock: Callable[[], float] = time.process_time) -> Times:
    """Seconds of each case in each of ``rounds`` rounds, after one round that is not counted."""
    names = list(cases)
    for case in cases.values():
        case()
    times: Times = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            gc.collect()
            started = clock()
            cases[name]()
            times[name].append(clock() - started)
    return times


def ratio(times: Times, above: str, below: str) -> dict[str, float]:
    """Median, smallest and largest ratio of two cases within a round."""
    return spread([a / b for a, b in zip(times[above], times[below], strict=True)])


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest."""
    return {"median": round(statistics.median(values), 3), "min": round(min(values), 3), "max": round(max(values), 3)}


def medians(times: Times) -> dict[str, float]:
    """Median milliseconds by case."""
    return {name: round(1000 * statistics.median(values), 2) for name, values in times.items()}
