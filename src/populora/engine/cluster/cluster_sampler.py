"""Distribute sampling requests among the engines of a cluster, and repeat them where an engine was lost.

A request goes to an engine that holds its adapter (`EngineLoads`). With ``selfplay.overlap = "off"`` each engine samples a fixed part of a
round as one batch. A replaced engine samples the same part again, so equal seeds give identical results, with or
without faults. With ``"eager"`` each request starts at once and returns as soon as it is done. It draws the same tokens, but the last bits
of its log-probabilities depend on what else is decoded with it.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence

import torch

from populora.core.errors import ClusterError
from populora.core.types import Generation, Request
from populora.engine.cluster.actor_pool import ActorLost, ActorPool, Call, PendingCall
from populora.engine.cluster.adapter_holders import EngineLoads, Holders, held_slots
from populora.engine.cluster.cluster_bank import ClusterBank, StoredSlot
from populora.engine.cluster.sampler_thread import SamplingParams
from populora.engine.sampling.sampler import AdapterSource, RequestKey, RequestSource, Sampler, check_key

POLL_SECONDS = 0.02
"""Interval at which an eager stream looks for new requests while none is finished."""


class ClusterSampler(Sampler):
    """Samples on the engines of a pool. ``stored`` refers to the adapters; engines that start later load theirs first.
    ``holders`` are by `holders_of`."""

    def __init__(self, pool: ActorPool, stored: dict[int, StoredSlot], holders: Holders, dtype: torch.dtype, eager: bool):
        self._pool, self._stored, self._holders, self._dtype, self._eager = pool, stored, holders, dtype, eager

    @property
    def decoder(self) -> str:
        """Name what decodes on the engines."""
        return ", ".join(sorted({decoder for *_, decoder in self._pool.prepared}))

    def sync_weights(self, adapters: AdapterSource, slots: Iterable[int]) -> None:
        """See `populora.engine.sampling.sampler.Sampler.sync_weights`. Adapters are sent in the precision of the base model; those of a
        `ClusterBank` go from its learners to the engines."""
        slots = list(slots)
        if not isinstance(adapters, ClusterBank):
            sent = {slot: self._pool.put(adapters.adapter(slot).to(self._dtype)) for slot in slots}
            self._stored |= {slot: StoredSlot(state=None, adapter=adapter, untrained=False) for slot, adapter in sent.items()}
        held = held_slots({slot: self._holders[slot] for slot in slots}, len(self._pool))
        parts = [(part, *(self._stored[slot].adapter for slot in part)) for part in held]
        self._pool.run([Call(engine, "sync_weights", part) for engine, part in enumerate(parts) if part[0]])

    def stream(self, source: RequestSource, max_tokens: int, temperature: float, stop: str) -> Iterator[tuple[Request, list[Generation]]]:
        """See `populora.engine.sampling.sampler.Sampler.stream`."""
        source, params = _CheckedSource(source, len(self._holders) - 1), SamplingParams(max_tokens, temperature, stop)
        waiting: dict[PendingCall, Request] = {}
        try:
            yield from self._stream_eagerly(source, params, waiting) if self._eager else self._stream_rounds(source, params)
        except (ClusterError, KeyboardInterrupt):  # no engine is left to call, or no time
            raise
        except BaseException:
            self._pool.wait_all(waiting)  # Ray may start an engine's calls in any order: a late one would join the next stream
            self._end_stream()
            raise
        self._end_stream()

    def _end_stream(self) -> None:
        self._pool.run([Call(engine, "end_stream") for engine in range(len(self._pool))])

    def _stream_rounds(self, source: RequestSource, params: SamplingParams) -> Iterator[tuple[Request, list[Generation]]]:
        while requests := source.next(block=True):
            loads, parts = EngineLoads(self._holders, len(self._pool)), dict[int, list[Request]]()
            for request in requests:
                parts.setdefault(loads.add(request.slot, request.samples), []).append(request)
            results = self._pool.run([Call(engine, "sample", (part, params)) for engine, part in parts.items()])
            for part, generations in zip(parts.values(), results, strict=True):
                yield from zip(part, generations, strict=True)

    def _stream_eagerly(
        self, source: RequestSource, params: SamplingParams, waiting: dict[PendingCall, Request]
    ) -> Iterator[tuple[Request, list[Generation]]]:
        """``waiting`` holds the calls whose results have not been taken yet."""
        loads = EngineLoads(self._holders, len(self._pool))
        losses = Counter[Hashable]()

        def start(request: Request) -> None:
            engine = loads.add(request.slot, request.samples)
            waiting[self._pool.submit(Call(engine, "sample", ([request], params)))] = request

        while True:
            requests = source.next(block=not waiting)
            for request in requests:
                start(request)
            if not requests and not waiting:
                return
            for done in self._pool.wait_some(waiting, POLL_SECONDS):
                request = waiting.pop(done)
                loads.remove(request.slot, done.index, request.samples)
                try:
                    ((generations,),) = self._pool.results([done])
                except ActorLost as lost:
                    self._pool.retry_or_raise(losses, request, lost)
                    start(request)
                    continue
                yield request, generations


class _CheckedSource:
    """A source that checks slots and keys here, because two requests with the same key may go to two engines."""

    def __init__(self, source: RequestSource, slots: int):
        self._source, self._slots, self._keys = source, slots, set[RequestKey]()

    def next(self, block: bool) -> Sequence[Request]:
        requests = self._source.next(block)
        for request in requests:
            check_key(request, self._keys, self._slots)
        return requests
