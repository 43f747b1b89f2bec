"""Distribute sampling requests among the engines of a cluster, and repeat them where an engine was lost.

With ``selfplay.overlap = "off"`` each engine samples a fixed part of a round as one batch. Parts take requests in turn, because requests of
one adapter have similar lengths. A replaced engine samples the same part again, so equal seeds give identical results, with or without
faults. With ``"eager"`` each request goes to the least loaded engine and returns as soon as it is done. It draws the same tokens, but the
last bits of its log-probabilities depend on what else is decoded with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

import torch

from populora.adapters.adapter import Adapter
from populora.core.errors import ClusterError
from populora.core.types import Generation, Request
from populora.engine.cluster.actor_pool import ActorLost, ActorPool, Call, PendingCall
from populora.engine.cluster.sampler_thread import SamplingParams
from populora.engine.sampling.protocol import Adapters, Feed
from populora.engine.sampling.requests import Named, all_of, check_key

POLL_SECONDS = 0.02
"""Interval at which an eager stream looks for new requests while none is finished."""


class ClusterSampler:
    """A `populora.engine.sampling.protocol.Sampler`. Engines that start later load ``published`` first."""

    def __init__(self, pool: ActorPool, published: dict[int, Adapter], tokenizer: Any, dtype: torch.dtype, eager: bool):
        self._pool, self._published, self._tokenizer, self._dtype, self._eager = pool, published, tokenizer, dtype, eager

    def publish(self, adapters: Adapters, slots: Iterable[int]) -> None:
        """See `populora.engine.sampling.protocol.Sampler.publish`. Adapters are sent in the precision of the base model."""
        changed = {slot: adapters.adapter(slot).to(self._dtype) for slot in slots}
        self._published |= changed
        if changed:
            self._run_on_all("publish", self._pool.put(changed))

    def generate(self, requests: Sequence[Request], max_tokens: int, temperature: float, stop: str) -> list[list[Generation]]:
        """See `populora.engine.sampling.protocol.Sampler.generate`."""
        return all_of(self, requests, max_tokens, temperature, stop)

    def stream(self, feed: Feed, max_tokens: int, temperature: float, stop: str) -> Iterator[tuple[Request, list[Generation]]]:
        """See `populora.engine.sampling.protocol.Sampler.stream`."""
        feed, params = _CheckedFeed(feed), SamplingParams(max_tokens, temperature, stop)
        try:
            yield from (self._stream_eagerly if self._eager else self._stream_rounds)(feed, params)
        except (ClusterError, KeyboardInterrupt):  # no engine is left to call, or no time
            raise
        except BaseException:
            self._run_on_all("end_stream")
            raise
        self._run_on_all("end_stream")

    def count_tokens(self, prompt: str) -> int:
        """Length of the prompt in tokens."""
        return len(self._tokenizer(prompt)["input_ids"])

    def _run_on_all(self, method: str, *arguments: Any) -> None:
        self._pool.run([Call(engine, method, arguments) for engine in range(len(self._pool))])

    def _stream_rounds(self, feed: Feed, params: SamplingParams) -> Iterator[tuple[Request, list[Generation]]]:
        engines = len(self._pool)
        while requests := feed.take(idle=True):
            parts = [requests[engine::engines] for engine in range(engines)]
            results = self._pool.run([Call(engine, "sample", (part, params)) for engine, part in enumerate(parts) if part])
            yield from ((request, results[index % engines][index // engines]) for index, request in enumerate(requests))

    def _stream_eagerly(self, feed: Feed, params: SamplingParams) -> Iterator[tuple[Request, list[Generation]]]:
        loads = [0] * len(self._pool)
        waiting: dict[PendingCall, Request] = {}
        losses = Counter[Hashable]()

        def start(request: Request) -> None:
            engine = loads.index(min(loads))
            loads[engine] += request.samples
            waiting[self._pool.submit(Call(engine, "sample", ([request], params)))] = request

        while True:
            requests = feed.take(idle=not waiting)
            for request in requests:
                start(request)
            if not requests and not waiting:
                return
            if (done := self._pool.wait_first(waiting, POLL_SECONDS)) is None:
                continue
            request = waiting.pop(done)
            loads[done.index] -= request.samples
            try:
                ((generations,),) = self._pool.results([done])
            except ActorLost as lost:
                self._pool.retry_or_raise(losses, request, lost)
                start(request)
                continue
            yield request, generations


class _CheckedFeed:
    """A feed that checks for duplicate keys here, because two requests with the same key may go to two engines."""

    def __init__(self, feed: Feed):
        self._feed, self._keys = feed, set[Named]()

    def take(self, idle: bool) -> Sequence[Request]:
        requests = self._feed.take(idle)
        for request in requests:
            check_key(request, self._keys)
        return requests
