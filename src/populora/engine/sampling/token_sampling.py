"""Choosing tokens: named uniforms per response, inverse-CDF sampling, and the end of a response.

A response's uniforms come from the stream that its request names, one number a token, so neither batching nor scheduling
nor the length limit can change which numbers it draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from populora.core.rng import stream

BLOCK = 32  # tokens for which uniforms are drawn at a time


class Uniforms:
    """The uniforms in [0, 1) of one request's responses, drawn in blocks as they are asked for."""

    def __init__(self, seed: int, key: tuple[str | int, ...], samples: int):
        self._stream, self._samples = stream(seed, "sample", *key), samples
        self._blocks: list[np.ndarray] = []

    def block(self, sample: int, number: int) -> np.ndarray:
        """Numbers [BLOCK] for tokens ``number * BLOCK`` and on of response ``sample``."""
        while len(self._blocks) <= number:
            self._blocks.append(self._stream.random((BLOCK, self._samples)))
        return self._blocks[number][:, sample]


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
        self._tokenizer, self._stop, self._eos = tokenizer, stop, eos
        self._tail = len(stop.encode()) + 1
        self._may_complete = {token for token, piece in enumerate(pieces(tokenizer, vocabulary)) if self._may_stop(piece)}

    def ends(self, tokens: Sequence[int]) -> bool:
        """Whether a response ends with the last of these tokens; to be asked after each."""
        if tokens[-1] in self._eos:
            return True
        return tokens[-1] in self._may_complete and self._stop in decode(self._tokenizer, tokens[-self._tail :])

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
