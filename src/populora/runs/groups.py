"""Means of a step's columns over groups of rows: all, those of a type, of a member, of both, and of a domain."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from populora.runs.step_columns import Columns

Mask = NDArray[np.bool_]
"""A truth value a row."""


@dataclass(frozen=True)
class Groups:
    """The groups over which the rows of a table are averaged: all, those of a type, of a member, of both; of several domains those, too.

    Rows are summed by pair of member and type, and pairs by group, in their order: equal tables give equal sums on every processor."""

    pair_of_row: NDArray[np.int64]
    pairs: NDArray[np.int64]
    """Pairs of each group, one group after the other."""
    group_of_pair: NDArray[np.int64]
    """The group of each of ``pairs``, as an index of ``endings``."""
    endings: tuple[str, ...]
    """What follows the metric's name, as in ``/S1/code_o``."""
    tokens: NDArray[np.float64]
    """Tokens of each row's response."""

    @classmethod
    def of(cls, table: Columns, member: str, domains: Sequence[str]) -> "Groups":
        """Group a table by its column ``member`` and by task."""
        pair_of_row, names = numbered(zip(table[member], table["task"], strict=True))
        groups: Mapping[str, list[int]] = defaultdict(list)
        for number, (name, task) in enumerate(names):
            for ending in ("", f"/{task}", *([f"/{task.domain}"] if len(domains) > 1 else [])):
                groups[ending].append(number)
                groups[f"/{name}{ending}"].append(number)
        sizes = [len(pairs) for pairs in groups.values()]
        pairs = np.array([pair for pairs in groups.values() for pair in pairs], dtype=np.int64)
        return cls(pair_of_row, pairs, np.repeat(np.arange(len(groups)), sizes), tuple(groups), floats(table["response_tokens"]))

    def means(self, role: str, rows: Mask, metrics: Mapping[str, Sequence[Any] | NDArray[Any]], by_token: bool = False) -> dict[str, float]:
        """Average each metric over the ``rows`` of each group, or over their tokens. A group without rows, or without tokens, has none."""
        weights = rows * self.tokens if by_token else rows.astype(np.float64)
        totals, means = self._sums(weights), dict[str, float]()
        for metric, values in metrics.items():
            sums = self._sums(np.where(weights > 0.0, weights * floats(values), 0.0))
            means |= {
                f"{role}/{metric}{ending}": value / total for ending, value, total in zip(self.endings, sums, totals, strict=True) if total
            }
        return means

    def _sums(self, values: NDArray[np.float64]) -> list[float]:
        of_pairs = np.bincount(self.pair_of_row, values)
        return np.bincount(self.group_of_pair, of_pairs[self.pairs]).tolist()


def floats(values: Sequence[Any] | NDArray[Any]) -> NDArray[np.float64]:
    """None becomes NaN."""
    return np.asarray(values, dtype=np.float64)


def numbered(names: Iterable[Any]) -> tuple[NDArray[np.int64], list[Any]]:
    """Number the names in order of first appearance; equal names get equal numbers. Also returns the names by number."""
    numbers = defaultdict[Any, int]()
    numbers.default_factory = numbers.__len__
    return np.fromiter(map(numbers.__getitem__, names), dtype=np.int64), list(numbers)
