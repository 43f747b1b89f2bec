"""Means of a step's columns over groups of rows: all, those of a type, of a member, of both, and of a domain."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from populora.core.types import TaskType

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
    def of(cls, table: pa.Table, member: str, domains: Sequence[str]) -> "Groups":
        """Group a table by its column ``member`` and by task."""
        pair_of_row, names = pairs_of(table, member, "task")
        groups: Mapping[str, list[int]] = defaultdict(list)
        for number, (name, task) in enumerate(names):
            for ending in ("", f"/{task}", *([f"/{TaskType(task).domain}"] if len(domains) > 1 else [])):
                groups[ending].append(number)
                groups[f"/{name}{ending}"].append(number)
        sizes = [len(pairs) for pairs in groups.values()]
        pairs = np.array([pair for pairs in groups.values() for pair in pairs], dtype=np.int64)
        return cls(pair_of_row, pairs, np.repeat(np.arange(len(groups)), sizes), tuple(groups), floats(table["response_tokens"]))

    def means(self, role: str, rows: Mask, metrics: Mapping[str, NDArray[Any]], by_token: bool = False) -> dict[str, float]:
        """Average each metric over the ``rows`` of each group, or over their tokens. A group without rows, or without tokens, has none."""
        weights = rows * self.tokens if by_token else rows.astype(np.float64)
        totals, means = self._sums(weights), dict[str, float]()
        for metric, values in metrics.items():
            sums = self._sums(np.where(weights > 0.0, weights * values, 0.0))
            means |= {
                f"{role}/{metric}{ending}": value / total for ending, value, total in zip(self.endings, sums, totals, strict=True) if total
            }
        return means

    def _sums(self, values: NDArray[np.float64]) -> list[float]:
        of_pairs = np.bincount(self.pair_of_row, values)
        return np.bincount(self.group_of_pair, of_pairs[self.pairs]).tolist()


def floats(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Return a column's numbers or truth values; what is missing is NaN."""
    return np.asarray(column.to_numpy(), dtype=np.float64)


def truths(column: pa.ChunkedArray) -> Mask:
    """Return a column's truth values, none of which is missing."""
    return np.asarray(column.to_numpy(), dtype=bool)


def pairs_of(table: pa.Table, first: str, second: str) -> tuple[NDArray[np.int64], list[tuple[Any, Any]]]:
    """Number the pairs of values that two columns have, in order of first appearance. Returns the number of each row, and the pairs.

    Neither column has a missing value.
    """
    keys, first_values, second_values = keys_of_pairs(table, first, second)
    distinct, first_rows, codes = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first_rows)
    pairs = [(first_values[key // len(second_values)], second_values[key % len(second_values)]) for key in distinct[order].tolist()]
    return np.argsort(order)[codes], pairs


def keys_of_pairs(table: pa.Table, first: str, second: str) -> tuple[NDArray[np.int64], list[Any], list[Any]]:
    """Return a number for each row, equal for equal pairs of values of two columns, and the values of both columns.

    Number n is the pair of value n // k of the first column and value n % k of the second, which has k values. Neither column has a missing
    value.
    """
    (firsts, first_values), (seconds, second_values) = (_numbered(table[column]) for column in (first, second))
    return firsts * len(second_values) + seconds, first_values, second_values


def _numbered(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], list[Any]]:
    encoded = column.combine_chunks().dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()
