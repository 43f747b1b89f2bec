"""Drawing a population that is too large to show member by member: bands of quantiles, and groups in the order of the ratings."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from populora.report.run_data import Array, Log, Steps
from populora.runs.style import SHOWN_SINGLY

BANDS = (
    f"Where a role has more than {SHOWN_SINGLY} members, bands take the place of their lines: pale from the lowest to the highest, darker "
    "between the quartiles, with a thin line at the median."
)


def too_many(members: Iterable[str]) -> bool:
    """Tell whether a role has more members than are shown one by one. The first letter of a name is its role's."""
    return max(Counter(member[0] for member in set(members)).values(), default=0) > SHOWN_SINGLY


def draw_quantiles(axis: Axes, steps: Steps, values: Array, colour: Any) -> None:
    """Draw the extremes, the quartiles and the median over the first axis of ``values`` [members, steps]; NaN is left out."""
    defined = np.isfinite(values).any(axis=0)
    low, first, median, third, high = np.full((5, len(steps)), np.nan)
    for quantile, line in zip((0, 0.25, 0.5, 0.75, 1), (low, first, median, third, high), strict=True):
        line[defined] = np.nanquantile(values[:, defined], quantile, axis=0)
    axis.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
    axis.fill_between(steps, first, third, color=colour, alpha=0.3, linewidth=0)
    axis.plot(steps, median, color=colour, linewidth=0.7)


def by_rating(log: Log, step: int, members: Sequence[str], most: int = SHOWN_SINGLY) -> list[list[str]]:
    """Order members by their last mu up to a step, the weakest first, and cut them into at most ``most`` groups of equal size."""
    known = log.steps <= step

    def rating(member: str) -> float:
        rated = log.get(f"rating/mu/{member}")[known]
        rated = rated[np.isfinite(rated)]
        return float(rated[-1]) if len(rated) else -np.inf

    ordered = sorted(members, key=rating)
    return [part.tolist() for part in np.array_split(ordered, min(most, len(ordered)))]
