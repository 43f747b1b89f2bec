"""Decode rows by `decode.c`: their keys and values, and one step of all of them.

A prompt has memory of its own. A row has a place for as many tokens as a response may have, in slabs that are reused.
"""

import ctypes
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from experiments.native_decode.loading import Long, Pointer, load
from experiments.native_decode.model import NativeModel, floats, unsupported

from populora.core.errors import BaseModelError
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.sampling import batch
from populora.engine.sampling.inprocess import InProcessSampler

BLOCK = 16  # tokens, as in decode.c
SLAB = 64  # rows whose places are allocated together, in large pages where the system has them


class _Batch(ctypes.Structure):
    _fields_ = [
        ("rows", Long), ("segments", Long), ("start", Pointer), ("slot", Pointer), ("scale", Pointer), ("token", Pointer),
        ("prompt", Pointer), ("prompt_length", Pointer), ("prompt_capacity", Pointer), ("response", Pointer), ("length", Pointer),
        ("capacity", Pointer), ("hidden", Pointer), ("scratch", Pointer),
    ]  # fmt: skip


class NativeCache:
    """Keys and values of the rows being decoded, each of at most ``capacity`` tokens, and of their prompts."""

    def __init__(self, model: NativeModel, capacity: int):
        self.model, self.capacity = model, -(-capacity // BLOCK) * BLOCK
        self._token = 2 * model.layers * model.kv_heads * model.size  # numbers
        self._free: list[np.ndarray] = []
        self._numbers = itertools.count()
        self._prompts: dict[int, tuple[np.ndarray, int, int]] = {}  # memory, length and capacity, by number
        self._places: list[np.ndarray] = []
        self.rows = np.zeros((6, 0), np.int64)
        """Of each row its prompt's address, length and capacity, and its own address, length and capacity."""

    def add_prompts(self, lengths: Sequence[int]) -> tuple[list[int], np.ndarray]:
        """Make room for new prompts. Returns their numbers [G], and the columns of `rows` for all their tokens [6, N]."""
        numbers = list(itertools.islice(self._numbers, len(lengths)))
        columns: list[np.ndarray] = []
        for number, length in zip(numbers, lengths, strict=True):
            capacity = -(-length // BLOCK) * BLOCK
            memory = floats(self._token * capacity)
            self._prompts[number] = memory, length, capacity
            token = np.zeros((6, length), np.int64)
            token[0], token[3], token[4], token[5] = memory.ctypes.data, memory.ctypes.data, np.arange(length), capacity
            columns.append(token)
        return numbers, np.concatenate(columns, 1)

    def drop_prompts(self, numbers: Sequence[int]) -> None:
        """Free prompts that no row needs any more."""
        for number in numbers:
            del self._prompts[number]

    def add_rows(self, prompts: Sequence[int]) -> None:
        """Append rows without tokens of their own, by the numbers of their prompts."""
        rows: list[tuple[int, ...]] = []
        for number in prompts:
            if not self._free:
                self._free.extend(floats(SLAB * self._token * self.capacity).reshape(SLAB, -1))
            self._places.append(self._free.pop())
            memory, *sizes = self._prompts[number]
            rows.append((memory.ctypes.data, *sizes, self._places[-1].ctypes.data, 0, self.capacity))
        self.rows = np.concatenate((self.rows.T, np.array(rows, np.int64).reshape(-1, 6))).T.copy()

    def keep_rows(self, rows: np.ndarray) -> None:
        """Keep only ``rows``, in that order, and free the places of the others."""
        staying = rows.tolist()
        self._free += [self._places[row] for row in sorted(set(range(len(self._places))).difference(staying))]
        self._places = [self._places[row] for row in staying]
        self.rows = self.rows[:, rows].copy()


class NativeDecoder:
    """Computes decoding steps and draws tokens by `decode.c`, with responses of at most ``max_tokens`` tokens."""

    def __init__(self, model: NativeModel, max_tokens: int):
        self.model, self.max_tokens, self.cache = model, max_tokens, NativeCache(model, max_tokens)
        functions, context = model.functions, model.adapted.context
        self._scratch = floats(functions.scratch_floats(model.address, context))
        self._logits = floats(functions.sample_floats(model.address))

    def __call__(self, tokens: Sequence[int], slots: Sequence[int]) -> torch.Tensor:
        """Return the hidden states [n, d] of the rows' new tokens, given the rows' slots."""
        hidden = self._compute(tokens, slots, self.cache.rows)
        self.cache.rows[4] += 1
        return hidden

    def prefill(self, prompts: Sequence[Sequence[int]], slots: Sequence[int]) -> tuple[list[int], torch.Tensor]:
        """Compute prompts, sorted by slot. Returns their numbers in the cache, and the hidden states [G, d] of their last tokens."""
        lengths = [len(prompt) for prompt in prompts]
        numbers, columns = self.cache.add_prompts(lengths)
        tokens = list(itertools.chain.from_iterable(prompts))
        hidden = self._compute(tokens, np.repeat(slots, lengths).tolist(), columns)
        return numbers, hidden[np.cumsum(lengths) - 1]

    def _compute(self, tokens: Sequence[int], slots: Sequence[int], rows: np.ndarray) -> torch.Tensor:
        counts = {slot: len(list(same)) for slot, same in groupby(slots)}
        start = np.array([0, *itertools.accumulate(counts.values())], np.int64)
        slot, token, scales = np.array(list(counts), np.int64), np.array(tokens, np.int64), self.model.scales()
        hidden = torch.empty(len(tokens), self.model.hidden)
        columns = [column.copy() for column in rows]
        arrays = [array.ctypes.data for array in (start, slot, scales, token, *columns)]
        step = _Batch(len(tokens), len(counts), *arrays, hidden.data_ptr(), self._scratch.ctypes.data)
        self.model.functions.decode(self.model.address, ctypes.addressof(step))
        return hidden

    def sample(self, hidden: torch.Tensor, temperature: float, uniforms: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See `populora.engine.sampling.decoders.Decoder`."""
        hidden, rows = hidden.contiguous(), len(hidden)
        tokens, logprobs, entropies = np.empty(rows, np.int64), np.empty(rows, np.float32), np.empty(rows, np.float32)
        arrays = [array.ctypes.data for array in (self._logits, tokens, logprobs, entropies)]
        self.model.functions.sample(self.model.address, rows, hidden.data_ptr(), uniforms.ctypes.data, temperature, *arrays)
        return tokens, logprobs, entropies


class NativePool:
    """Stands in for `populora.engine.sampling.decoders.DecoderPool`: keeps decoders for responses of at most ``max_tokens`` tokens."""

    def __init__(self, model: NativeModel, max_tokens: int):
        self.model, self.max_tokens = model, max_tokens
        self._idle: list[NativeDecoder] = []

    def acquire(self) -> NativeDecoder:
        """Return a decoder without any rows."""
        return self._idle.pop() if self._idle else NativeDecoder(self.model, self.max_tokens)

    def release(self, decoder: NativeDecoder) -> None:
        """Take back the decoder of a stream whose rows have all left."""
        self._idle.append(decoder)


def make_pool(adapted: AdaptedModel, max_tokens: int) -> NativePool:
    """Return decoders for a model. Raises `BaseModelError` with the reason where `decode.c` cannot compute it."""
    library = load()
    if reason := library if isinstance(library, str) else unsupported(adapted, library.panel()):
        raise BaseModelError(f"expected a model and a machine for decode.c: {reason}")
    return NativePool(NativeModel(adapted, library), max_tokens)


@contextmanager
def native_sampling(sampler: InProcessSampler, pool: NativePool) -> Iterator[None]:
    """Decode and draw by ``pool`` inside the block."""

    def draw(hidden: torch.Tensor, temperature: float, uniforms: torch.Tensor) -> tuple[torch.Tensor, ...]:
        arrays = NativeDecoder.sample(drawing, hidden, temperature, uniforms.numpy())
        return tuple(map(torch.from_numpy, arrays))

    def prefill(continuous: Any, requests: Sequence[batch.ActiveRequest]) -> None:
        for chunk in batch._chunks(sorted(requests, key=lambda active: len(active.prompt))):
            numbers, hidden = continuous._decoder.prefill([active.prompt for active in chunk], [active.request.slot for active in chunk])
            for active, number, state in zip(chunk, numbers, hidden, strict=True):
                active.prompt_number, active.hidden = number, state

    drawing, torch_pool, torch_logits = pool.acquire(), sampler.decoders, sampler.adapted.logits
    sampler.decoders, sampler.adapted.logits = pool, lambda hidden: hidden  # `draw` computes the logits
    try:
        with patch.object(batch, "sample_tokens", draw), patch.object(batch.ContinuousBatch, "_prefill", prefill):
            yield
    finally:
        sampler.decoders, sampler.adapted.logits = torch_pool, torch_logits
        pool.release(drawing)
