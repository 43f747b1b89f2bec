"""A sampler's decoders with a clock.

run.sampler.decoders = decoders = TimedDecoders(run.sampler.decoders)
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from populora.engine.sampling.decoder_pool import DecoderPool
from populora.engine.sampling.decoders import Cache, Decoder


class TimedDecoder:
    """A decoder that adds to ``spent``, see `TimedDecoders`."""

    def __init__(self, decoder: Decoder, spent: dict[str, float]):
        self.decoder, self.spent, self.spreads_slots = decoder, spent, decoder.spreads_slots

    @property
    def cache(self) -> Cache:
        return self.decoder.cache

    def prefill(self, prompts: Sequence[Sequence[int]], slots: Sequence[int]) -> tuple[list[int], torch.Tensor]:
        return self._timed("prefill", lambda: self.decoder.prefill(prompts, slots))

    def __call__(self, tokens: Sequence[int], slots: Sequence[int]) -> torch.Tensor:
        return self._timed("decode", lambda: self.decoder(tokens, slots))

    def sample(self, hidden: torch.Tensor, temperature: float, uniforms: np.ndarray) -> tuple[list[int], list[float], list[float]]:
        return self._timed("decode", lambda: self.decoder.sample(hidden, temperature, uniforms))

    def _timed(self, phase: str, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = work()
        self.spent[phase] += time.perf_counter() - started
        return result


class TimedDecoders:
    """A `DecoderPool` whose decoders add to ``spent``: wall seconds of ``prefill`` and of ``decode``, head and draw included."""

    def __init__(self, pool: DecoderPool):
        self.pool, self.spent = pool, defaultdict[str, float](float)

    @property
    def native(self) -> bool:
        return self.pool.native

    def best_rows(self, limit: int) -> int:
        return self.pool.best_rows(limit)

    def acquire(self, rows: int, max_tokens: int) -> TimedDecoder:
        return TimedDecoder(self.pool.acquire(rows, max_tokens), self.spent)

    def release(self, decoder: TimedDecoder) -> None:
        self.pool.release(decoder.decoder)
