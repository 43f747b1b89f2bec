"""Sample tokens by inverse CDF from named random numbers, and decide where a response ends.

A response draws one number a token from the random stream that its request's key names. So neither batching nor scheduling nor the
length limit changes which numbers it draws.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from populora.core.rng import stream

BLOCK = 32  # tokens for which uniforms are drawn at a time
CDF_BLOCK = 512  # tokens of a block in `inverse_cdf`, about the square root of a large vocabulary


class UniformStream:
    """The random numbers in [0, 1) of one request's responses, drawn in blocks on demand."""

    def __init__(self, seed: int, key: tuple[str | int, ...], samples: int):
        self._stream, self._samples = stream(seed, "sample", *key), samples
        self._blocks: list[np.ndarray] = []

    def block(self, sample: int, number: int) -> np.ndarray:
        """Return the numbers [BLOCK] of response ``sample`` for the tokens from ``number * BLOCK`` on."""
        while len(self._blocks) <= number:
            self._blocks.append(self._stream.random((BLOCK, self._samples)))
        return self._blocks[number][:, sample]


def sample_tokens(logits: torch.Tensor, temperature: float, uniforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sample a token for each row of logits [rows, V] by its number in ``uniforms`` [rows]. Temperature 0 is greedy.

    Returns tokens, their log-probabilities at temperature 1, and the entropies of the distributions that were drawn from (at
    temperature 1 for greedy decoding), each [rows].
    """
    logits = logits.float()
    log_p = logits.log_softmax(-1)
    drawn_from = log_p if temperature in (0.0, 1.0) else (logits / temperature).log_softmax(-1)
    p = drawn_from.exp()
    tokens = logits.argmax(-1) if temperature == 0.0 else inverse_cdf(p, uniforms)
    entropy = -torch.where(p > 0, p * drawn_from, 0.0).sum(-1)
    return tokens, log_p.gather(1, tokens[:, None])[:, 0], entropy


def inverse_cdf(p: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return for each row of p [rows, V] the first token up to which more than the share ``uniforms`` [rows] of the row's sum lies.

    Sums are in double precision. First the block of `CDF_BLOCK` tokens is found, then the token in it: a cumulative sum over the
    vocabulary would take a GPU longer than the rest of the sampling. No token of probability 0 is returned.
    """
    blocks = F.pad(p, (0, -p.shape[1] % CDF_BLOCK)).unflatten(1, (-1, CDF_BLOCK))
    cumulative = blocks.sum(-1, dtype=torch.float64).cumsum(-1)
    wanted = uniforms[:, None] * cumulative[:, -1:]
    block = torch.searchsorted(cumulative, wanted, right=True).clamp_(max=cumulative.shape[1] - 1)
    previous = F.pad(cumulative, (1, 0)).gather(1, block)
    inside = blocks.gather(1, block[..., None].expand(-1, -1, CDF_BLOCK))[:, 0].double().cumsum(-1)
    below_end = torch.nextafter(inside[:, -1:], torch.zeros_like(inside[:, -1:]))
    tokens = block[:, 0] * CDF_BLOCK + torch.searchsorted(inside, torch.minimum(wanted - previous, below_end), right=True)[:, 0]
    return tokens.clamp_(max=p.shape[1] - 1)  # for rows of NaN, which the learner reports


class StopCondition:
    """Decides whether a response is over: after an end-of-sequence id, or after the token that completes the text ``stop``.

    The last token may hold the stop text with more around it, or only its last character, so the last few tokens are decoded. That is
    done only after tokens that could complete the stop text, which are computed once for the vocabulary.
    """

    def __init__(self, tokenizer: Any, vocabulary: int, stop: str, eos: frozenset[int]):
        self._tokenizer, self._stop, self._eos = tokenizer, stop, eos
        self._tail = len(stop.encode()) + 1
        self._candidates = {token for token, text in enumerate(token_texts(tokenizer, vocabulary)) if self._may_complete(text)}

    def holds(self, tokens: Sequence[int]) -> bool:
        """Tell whether a response ends with the last of these tokens. Call it after each token."""
        if tokens[-1] in self._eos:
            return True
        return tokens[-1] in self._candidates and self._stop in decode(self._tokenizer, tokens[-self._tail :])

    def _may_complete(self, text: str) -> bool:
        stop = self._stop
        if not stop:
            return False
        if not stop.isascii() or any(character.isspace() for character in stop):
            return True  # a token alone may decode to other bytes or lose its spaces: check after every token
        return stop in text or any(text.startswith(stop[cut:]) for cut in range(1, len(stop)))


def token_texts(tokenizer: Any, vocabulary: int) -> list[str]:
    """Decode each id of the vocabulary alone; ids without a token are empty."""
    size = len(tokenizer)
    return [decode(tokenizer, [token]) if token < size else "" for token in range(vocabulary)]


def decode(tokenizer: Any, tokens: Sequence[int]) -> str:
    """Decode tokens to text without special tokens, otherwise unaltered."""
    return tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
