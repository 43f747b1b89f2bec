"""Sampling by the engines of a cluster: requests are dealt out, and asked again where an engine was lost.

With ``selfplay.overlap = "off"`` a round of requests is cut into as many parts as there are engines, by turns, since those of one
adapter are alike in length; an engine samples its part as one batch, and after a fault its successor samples the same part. So equal
seeds give equal bytes, with faults and without. With ``"eager"`` each request goes to the engine with least to do and comes back as
soon as it is done: what it draws is the same, but with what else it is decoded, and so the last bits of its log-probabilities, is up to
chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

import torch

from populora.adapters.adapter import Adapter
from populora.core.errors import ClusterError
from populora.core.types import Generation, Request
from populora.engine.cluster.actor_pool import Crew
from populora.engine.cluster.calls import Asked, Call, Lost
from populora.engine.cluster.serving import How
from populora.engine.sampling.protocol import Adapters, Feed
from populora.engine.sampling.requests import Named, all_of, check_key

LOOK_SECONDS = 0.02
"""How often an eager stream asks for new requests while none comes back."""


class ClusterSampler:
    """A `populora.engine.sampling.protocol.Sampler`. ``published`` is what engines that start later have to be given first."""

    def __init__(self, crew: Crew, published: dict[int, Adapter], tokenizer: Any, dtype: torch.dtype, eager: bool):
        self._crew, self._published, self._tokenizer, self._dtype, self._eager = crew, published, tokenizer, dtype, eager

    def publish(self, adapters: Adapters, slots: Iterable[int]) -> None:
        """See `populora.engine.sampling.protocol.Sampler.publish`. Adapters travel in the precision of the base."""
        changed = {slot: adapters.adapter(slot).to(self._dtype) for slot in slots}
        self._published |= changed
        if changed:
            shared = self._crew.share(changed)
            self._crew.each([Call(engine, "publish", (shared,)) for engine in range(len(self._crew))])

    def generate(self, requests: Sequence[Request], max_tokens: int, temperature: float, stop: str) -> list[list[Generation]]:
        """See `populora.engine.sampling.protocol.Sampler.generate`."""
        return all_of(self, requests, max_tokens, temperature, stop)

    def stream(self, feed: Feed, max_tokens: int, temperature: float, stop: str) -> Iterator[tuple[Request, list[Generation]]]:
        """See `populora.engine.sampling.protocol.Sampler.stream`."""
        feed, how = _Named(feed), How(max_tokens, temperature, stop)
        try:
            yield from (self._as_they_come if self._eager else self._in_rounds)(feed, how)
        except (ClusterError, KeyboardInterrupt):  # there is nobody to be asked, or no time
            raise
        except BaseException:
            self._rest()
            raise
        self._rest()

    def count_tokens(self, prompt: str) -> int:
        """Length of the prompt in tokens."""
        return len(self._tokenizer(prompt)["input_ids"])

    def _rest(self) -> None:
        self._crew.each([Call(engine, "rest") for engine in range(len(self._crew))])

    def _in_rounds(self, feed: Feed, how: How) -> Iterator[tuple[Request, list[Generation]]]:
        engines = len(self._crew)
        while requests := feed.take(idle=True):
            parts = [requests[engine::engines] for engine in range(engines)]
            done = self._crew.each([Call(engine, "sample", (part, how)) for engine, part in enumerate(parts) if part])
            yield from ((request, done[at % engines][at // engines]) for at, request in enumerate(requests))

    def _as_they_come(self, feed: Feed, how: How) -> Iterator[tuple[Request, list[Generation]]]:
        loads = [0] * len(self._crew)
        waiting: dict[Asked, Request] = {}
        losses = Counter[Hashable]()

        def start(request: Request) -> None:
            engine = loads.index(min(loads))
            loads[engine] += request.samples
            waiting[self._crew.ask(Call(engine, "sample", ([request], how)))] = request

        while True:
            requests = feed.take(idle=not waiting)
            for request in requests:
                start(request)
            if not requests and not waiting:
                return
            if (asked := self._crew.first(waiting, LOOK_SECONDS)) is None:
                continue
            request = waiting.pop(asked)
            loads[asked.index] -= request.samples
            try:
                ((generations,),) = self._crew.answers([asked])
            except Lost as lost:
                self._crew.bear(losses, request, lost)
                start(request)
                continue
            yield request, generations


class _Named:
    """A feed whose requests are told apart here: two of the same key may go to two engines."""

    def __init__(self, feed: Feed):
        self._feed, self._keys = feed, set[Named]()

    def take(self, idle: bool) -> Sequence[Request]:
        requests = self._feed.take(idle)
        for request in requests:
            check_key(request, self._keys)
        return requests
