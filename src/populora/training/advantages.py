"""REINFORCE++-baseline advantages: per-prompt centring, then whitening over a batch (paper, "Objective and reward").

Two steps for one member:

1. the mean reward of a prompt's samples is subtracted from each of them (the mean includes the sample itself, nothing is
   divided; a prompt with one sample is left as it is, since its mean would erase it);
2. every response token carries its sequence's centred reward, and these are whitened over all tokens of the batch:
   ``(x - mean) / sqrt(var + 1e-8)`` with the unbiased variance. Long responses weigh more, as in verl's ``masked_whiten``.

All tokens of a sequence share one value, so one number per sequence is returned. `populora.training.train_rows` decides which sequences
are whitened together.
"""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from populora.core.errors import PopuloraError

EPSILON = 1e-8
ROUNDING = 1e-12
"""Centred rewards whose range is smaller differ by rounding alone."""


def advantages(
    rewards: ArrayLike,
    groups: Sequence[Hashable],
    lengths: ArrayLike,
    batches: Sequence[Hashable] | None = None,
) -> NDArray[np.float64]:
    """Compute the advantages [n] of one member's n sequences, each valid for all tokens of its sequence.

    ``groups`` [n] names each sequence's prompt, ``lengths`` [n] counts response tokens, ``batches`` [n] names the batch in which it
    is whitened (by default one for all). In a batch whose centred rewards are equal the advantages are 0.
    Raises `PopuloraError` for sizes that do not match, negative token counts, or rewards that are not finite.
    """
    values, tokens = np.asarray(rewards, dtype=np.float64), np.asarray(lengths, dtype=np.int64)
    _check(values, groups, tokens, batches)
    centred = _centred(values, _codes(groups))
    codes = np.zeros(len(values), dtype=np.int64) if batches is None else _codes(batches)
    result = np.zeros_like(centred)
    for batch in np.unique(codes):
        in_batch = codes == batch
        result[in_batch] = _whitened(centred[in_batch], tokens[in_batch])
    return result


def _centred(values: NDArray[np.float64], prompts: NDArray[np.int64]) -> NDArray[np.float64]:
    sizes = np.bincount(prompts)
    means = np.bincount(prompts, weights=values) / np.maximum(sizes, 1)
    return values - np.where(sizes > 1, means, 0.0)[prompts]


def _whitened(values: NDArray[np.float64], tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    counted = values[tokens > 0]
    if counted.size == 0 or np.ptp(counted) < ROUNDING:
        return np.zeros_like(values)
    total = tokens.sum()  # at least 2: two sequences with tokens differ
    mean = (tokens * values).sum() / total
    variance = (tokens * (values - mean) ** 2).sum() / (total - 1)
    return (values - mean) / np.sqrt(variance + EPSILON)


def _codes(names: Sequence[Hashable]) -> NDArray[np.int64]:
    """Number the names in order of first appearance; equal names get equal numbers."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def _check(rewards: NDArray[np.float64], groups: Sequence[Hashable], tokens: NDArray[np.int64], batches: Sequence[Hashable] | None) -> None:
    n = len(rewards)
    if rewards.shape != (n,) or tokens.shape != (n,) or len(groups) != n or (batches is not None and len(batches) != n):
        sizes = f"rewards {rewards.shape}, lengths {tokens.shape}, groups {len(groups)}, batches {batches and len(batches)}"
        raise PopuloraError(f"expected one reward, group, length and batch a sequence, got {sizes}")
    if not np.isfinite(rewards).all() or (tokens < 0).any():
        raise PopuloraError(f"expected finite rewards and token counts of at least 0, got {rewards.tolist()} and {tokens.tolist()}")
