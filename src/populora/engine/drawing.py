"""Choosing tokens: named uniforms per response, inverse-CDF sampling, and the end of a response.

A response's uniforms come from the stream that its request names, one number a token, so neither batching nor scheduling
nor the length limit can change which numbers it draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from populora.rng import stream

BLOCK = 32  # tokens for which uniforms are drawn at a time


class Uniforms:
    """Uniforms in [0, 1) for all responses of some requests; request ``i`` has ``samples[i]`` rows."""

    def __init__(self, seed: int, keys: Sequence[tuple[str | int, ...]], samples: Sequence[int]):
        self._streams = [stream(seed, "sample", *key) for key in keys]
        self._samples = samples
        self._block = np.empty((0, 0))

    def at(self, token: int) -> torch.Tensor:
        """The numbers [rows] for token ``token``; to be asked for 0, 1, 2, ... in turn."""
        if token % BLOCK == 0:
            parts = [generator.random((BLOCK, count)) for generator, count in zip(self._streams, self._samples, strict=True)]
            self._block = np.concatenate(parts, 1)
        return torch.from_numpy(self._block[token % BLOCK])


def choose(logits: torch.Tensor, temperature: float, uniforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Token, log-probability at temperature 1, and entropy [rows] for fp32 logits [rows, V]; temperature 0 is greedy.

    The entropy is that of the distribution that was drawn from; for greedy decoding, that at temperature 1.
    """
    log_p = logits.log_softmax(-1)
    drawn_from = log_p if temperature in (0.0, 1.0) else (logits / temperature).log_softmax(-1)
    p = drawn_from.exp()
    if temperature == 0.0:
        tokens = logits.argmax(-1)
    else:
        cumulative = p.double().cumsum(-1)
        wanted = uniforms.to(p.device)[:, None] * cumulative[:, -1:]
        tokens = torch.searchsorted(cumulative, wanted, right=True)[:, 0].clamp_(max=logits.shape[-1] - 1)
    entropy = -torch.where(p > 0, p * drawn_from, 0.0).sum(-1)
    return tokens, log_p.gather(1, tokens[:, None])[:, 0], entropy


class Ending:
    """Whether a response is over: an end-of-sequence id, or the text ``stop`` completed by the last token.

    One token may hold the stop text with more around it, or only its last character, so the tail is decoded; but only where
    the last token could complete it at all, which is known per vocabulary entry.
    """

    def __init__(self, tokenizer: Any, vocabulary: int, stop: str, eos: frozenset[int]):
        self._tokenizer, self._stop = tokenizer, stop
        self._tail = len(stop.encode()) + 1
        self.is_eos = torch.zeros(vocabulary, dtype=torch.bool)
        self.is_eos[sorted(eos)] = True
        self.may_stop = torch.tensor([self._may_stop(piece) for piece in pieces(tokenizer, vocabulary)])

    def stops(self, tokens: Sequence[int]) -> bool:
        """Whether the text of these tokens contains ``stop`` near its end; ask after each token for which ``may_stop``."""
        return self._stop in decode(self._tokenizer, tokens[-self._tail :])

    def _may_stop(self, piece: str) -> bool:
        stop = self._stop
        if not stop:
            return False
        if not stop.isascii() or any(character.isspace() for character in stop):
            return True  # a piece alone may decode to other bytes or lose its spaces: look at the tail after every token
        return stop in piece or any(piece.startswith(stop[cut:]) for cut in range(1, len(stop)))


def pieces(tokenizer: Any, vocabulary: int) -> list[str]:
    """The text of each id alone; ids without a token are empty."""
    known = len(tokenizer)
    return [decode(tokenizer, [token]) if token < known else "" for token in range(vocabulary)]


def decode(tokenizer: Any, tokens: Sequence[int]) -> str:
    """Text of the tokens, without special tokens, otherwise unaltered."""
    return tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
