"""Continuous batching: the rows that are decoded together, which responses enter, and which leave.

A row is one response being written. When a row finishes, the next waiting response of the adapter with the fewest rows enters. While all
adapters have work they keep equally many rows, so that their segments of the batch are equal. A decoder may prefer few adapters
(`Decoder.spreads_slots`): then the one with the most rows goes first. Rows are sorted by adapter.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from populora.core.types import Request
from populora.engine.planning.decoding_memory import PREFILL_TOKENS
from populora.engine.sampling.decoders import Decoder
from populora.engine.sampling.token_sampling import BLOCK, StopCondition, UniformStream

REFILL = 1 / 16  # share of the rows that must be free, so that prompts are prefilled together rather than one by one


@dataclass(eq=False)
class ActiveRequest:
    """A request in progress: ``done`` holds its finished rows by sample.

    After prefilling, ``prompt_number`` identifies its prompt in the cache and ``hidden`` [d] is the prompt's last state, from which all
    samples start.
    """

    request: Request
    prompt: array[int]
    uniforms: UniformStream
    done: dict[int, Row] = field(default_factory=dict)
    prompt_number: int = -1
    hidden: torch.Tensor = field(default_factory=lambda: torch.empty(0))


@dataclass(eq=False)
class Row:
    """One response being written; ``entropy`` is summed over its tokens."""

    owner: ActiveRequest
    sample: int
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropy: float = 0.0
    stopped: bool = False
    uniforms: np.ndarray = field(default_factory=lambda: np.empty(0))
    """The numbers for the current block of tokens."""

    def uniform(self) -> float:
        """Return the number in [0, 1) for the next token."""
        index = len(self.tokens) % BLOCK
        if index == 0:
            self.uniforms = self.owner.uniforms.block(self.sample, len(self.tokens) // BLOCK)
        return self.uniforms[index]


class ContinuousBatch:
    """At most ``limit`` rows of a model, each of at most ``max_tokens`` tokens. ``decoder`` is made for at least as many rows."""

    def __init__(self, stop: StopCondition, limit: int, max_tokens: int, temperature: float, decoder: Decoder):
        self.stop, self.limit, self.max_tokens, self.temperature = stop, limit, max_tokens, temperature
        self._waiting: defaultdict[int, deque[tuple[ActiveRequest, int]]] = defaultdict(deque)
        self._rows: list[Row] = []
        self._hidden = torch.empty(0)  # the rows' last hidden states [n, d]
        self._decoder, self._cache = decoder, decoder.cache

    @property
    def busy(self) -> bool:
        """Tell whether there is anything to decode."""
        return bool(self._rows) or any(self._waiting.values())

    def add(self, requests: Iterable[ActiveRequest]) -> None:
        """Queue the samples of these requests."""
        for active in requests:
            self._waiting[active.request.slot].extend((active, sample) for sample in range(active.request.samples))

    def step(self) -> list[ActiveRequest]:
        """Fill free rows and write one token to each row. Return the requests that this finished."""
        free = self.limit - len(self._rows)
        if free and (not self._rows or free >= self.limit * REFILL):
            self._fill(self._next(free))
        live = [index for index, ended in enumerate(self._write()) if not ended]
        finished = self._keep(live)
        if live:
            self._hidden = self._decoder([row.tokens[-1] for row in self._rows], [row.owner.request.slot for row in self._rows])
        return finished

    def _next(self, free: int) -> list[tuple[ActiveRequest, int]]:
        """Take at most ``free`` waiting samples from the queues, always of the slot with the fewest rows, or the most."""
        rows = Counter(row.owner.request.slot for row in self._rows)
        sign = 1 if self._decoder.spreads_slots else -1
        turns = [(sign * rows[slot], slot) for slot, waiting in self._waiting.items() if waiting]
        heapq.heapify(turns)
        chosen: list[tuple[ActiveRequest, int]] = []
        while turns and len(chosen) < free:
            count, slot = heapq.heappop(turns)
            chosen.append(self._waiting[slot].popleft())
            if self._waiting[slot]:
                heapq.heappush(turns, (count + sign, slot))
        return chosen

    def _fill(self, chosen: Sequence[tuple[ActiveRequest, int]]) -> None:
        """Add rows for these samples, sorted by slot among the others."""
        if not chosen:
            return
        self._prefill([active for active in dict.fromkeys(active for active, _ in chosen) if active.prompt_number < 0])
        self._rows += [Row(active, sample) for active, sample in chosen]
        order = sorted(range(len(self._rows)), key=lambda index: self._rows[index].owner.request.slot)
        self._cache.add_rows([active.prompt_number for active, _ in chosen])
        self._cache.keep_rows(np.array(order))
        states = [*self._hidden, *(active.hidden for active, _ in chosen)]
        self._hidden = torch.stack([states[index] for index in order])
        self._rows = [self._rows[index] for index in order]

    def _prefill(self, requests: Sequence[ActiveRequest]) -> None:
        """Compute each prompt once."""
        for chunk in _chunks(sorted(requests, key=lambda active: len(active.prompt))):
            numbers, hidden = self._decoder.prefill([active.prompt for active in chunk], [active.request.slot for active in chunk])
            for active, number, state in zip(chunk, numbers, hidden, strict=True):
                active.prompt_number, active.hidden = number, state

    def _write(self) -> list[bool]:
        """Sample each row's next token. Return which rows are finished."""
        uniforms = np.array([row.uniform() for row in self._rows])
        drawn = self._decoder.sample(self._hidden, self.temperature, uniforms)
        ended: list[bool] = []
        for row, token, logprob, entropy in zip(self._rows, *drawn, strict=True):
            row.tokens.append(token)
            row.logprobs.append(logprob)
            row.entropy += entropy
            row.stopped = self.stop.holds(row.tokens)
            ended.append(row.stopped or len(row.tokens) == self.max_tokens)
        return ended

    def _keep(self, live: Sequence[int]) -> list[ActiveRequest]:
        """Drop all rows but the live ones. Return the requests whose last row left."""
        if len(live) == len(self._rows):
            return []
        finished: list[ActiveRequest] = []
        staying = set(live)
        for row in (row for index, row in enumerate(self._rows) if index not in staying):
            row.owner.done[row.sample] = row
            if len(row.owner.done) == row.owner.request.samples:
                finished.append(row.owner)
        self._cache.keep_rows(np.array(live, dtype=np.int64))
        self._cache.drop_prompts([active.prompt_number for active in finished])
        self._rows = [self._rows[index] for index in live]
        self._hidden = self._hidden[:0]
        return finished


def _chunks(requests: Sequence[ActiveRequest]) -> list[list[ActiveRequest]]:
    """Split requests, the shortest prompt first, into chunks sorted by slot. A chunk of several has at most `PREFILL_TOKENS` prompt tokens
    if each counts as its longest: on CUDA their keys and values are kept in rectangles."""
    chunks: list[list[ActiveRequest]] = [[]]
    for active in requests:
        if chunks[-1] and (len(chunks[-1]) + 1) * len(active.prompt) > PREFILL_TOKENS:
            chunks.append([])
        chunks[-1].append(active)
    return [sorted(chunk, key=lambda active: active.request.slot) for chunk in chunks if chunk]
