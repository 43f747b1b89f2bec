"""REINFORCE++-baseline advantages: per-prompt centring, then whitening over a batch (paper, "Objective and reward").

Two steps for one member:

1. the mean reward of a prompt's samples is subtracted from each of them (the mean includes the sample itself, nothing is
   divided; a prompt with one sample is left as it is, since its mean would erase it);
2. every response token carries its sequence's centred reward, and these are whitened over all tokens of the batch:
   ``(x - mean) / sqrt(var + 1e-8)`` with the unbiased variance. Long responses weigh more, as in verl's ``masked_whiten``.

Centred rewards sum to 0 over the sequences of a prompt, but not over their tokens. Where bad responses are longer, their mean over tokens
is negative. Subtracted from all, as in verl, it rewards a prompt whose samples all failed. With ``centring = "prompt"`` the mean is that of
prompts with one sample, and subtracted from those alone; the others are divided by the root of the mean square.

All tokens of a sequence share one value, so one number per sequence is returned. `populora.training.train_rows` decides which sequences
are whitened together.
"""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from populora.core.errors import PopuloraError

EPSILON = 1e-8
ROUNDING = 1e-12
"""Centred rewards that are smaller differ from 0 by rounding alone."""
Centring = Literal["prompt", "batch"]


def advantages(
    rewards: ArrayLike, prompts: ArrayLike, lengths: ArrayLike, batches: ArrayLike, centring: Centring = "prompt"
) -> NDArray[np.float64]:
    """Compute the advantages [n] of n sequences, each valid for all tokens of its sequence.

    ``prompts`` [n] has a number for each sequence's prompt, ``lengths`` [n] counts response tokens, ``batches`` [n] has a number for the
    batch in which it is whitened. With ``centring`` "prompt" a prompt whose several samples earned the same has advantages of 0,
    otherwise only if all centred rewards of its batch are equal.
    Raises `PopuloraError` for sizes that do not match, negative token counts, or rewards that are not finite.
    """
    values, tokens = np.asarray(rewards, dtype=np.float64), np.asarray(lengths, dtype=np.int64)
    of_prompts, of_batches = (np.unique(np.asarray(numbers), return_inverse=True)[1] for numbers in (prompts, batches))
    _check(values, of_prompts, tokens, of_batches)
    several = np.bincount(of_prompts)[of_prompts] > 1
    centred = _centred(values, of_prompts, several)
    single = ~several if centring == "prompt" else np.ones_like(several)
    return _whitened(centred, tokens, single, of_batches)


def _centred(values: NDArray[np.float64], prompts: NDArray[np.int64], several: NDArray[np.bool_]) -> NDArray[np.float64]:
    means = np.bincount(prompts, weights=values) / np.bincount(prompts)
    return values - np.where(several, means[prompts], 0.0)


def _whitened(
    values: NDArray[np.float64], tokens: NDArray[np.int64], shifted: NDArray[np.bool_], batches: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Whiten each batch over its tokens. The mean is that of its ``shifted`` values, and subtracted from those."""
    counted = tokens * shifted
    means = np.bincount(batches, counted * values) / np.maximum(np.bincount(batches, counted), 1)
    values = np.where(shifted, values - means[batches], values)
    values[np.abs(values) < ROUNDING] = 0.0
    variances = np.bincount(batches, tokens * values**2) / np.maximum(np.bincount(batches, tokens) - 1, 1)
    return np.where(variances[batches] > 0.0, values / np.sqrt(variances + EPSILON)[batches], 0.0)


def _check(rewards: NDArray[np.float64], prompts: NDArray[np.int64], tokens: NDArray[np.int64], batches: NDArray[np.int64]) -> None:
    shapes = [column.shape for column in (rewards, prompts, tokens, batches)]
    if shapes != [(len(rewards),)] * 4:
        named = ", ".join(f"{name} {shape}" for name, shape in zip(("rewards", "prompts", "lengths", "batches"), shapes, strict=True))
        raise PopuloraError(f"expected one reward, prompt, length and batch a sequence, got {named}")
    if not np.isfinite(rewards).all() or (tokens < 0).any():
        bad = np.flatnonzero(~np.isfinite(rewards) | (tokens < 0))[0]
        raise PopuloraError(f"sequence {bad}: expected a finite reward and at least 0 tokens, got {rewards[bad]} and {tokens[bad]}")
