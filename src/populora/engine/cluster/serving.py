"""A sampler's stream that is fed from other threads: batches of requests in, their generations out.

A batch that comes while others are sampled joins them. Requests of one batch enter the stream together, so that what is decoded together
is the same whenever the batch is alone in the stream.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from populora.core.types import Generation, Request
from populora.engine.sampling.protocol import Sampler
from populora.engine.sampling.requests import Named


@dataclass(frozen=True)
class How:
    """`Sampler.stream`'s arguments: batches that differ in them are sampled one after the other."""

    max_tokens: int
    temperature: float
    stop: str


@dataclass(eq=False)
class _Batch:
    requests: Sequence[Request]
    how: How
    answer: Future[list[list[Generation]]]
    done: dict[Named, list[Generation]] = field(default_factory=dict)


class Serving:
    """Streams of ``sampler`` in a thread of their own. A stream stays open between batches, until `rest`."""

    def __init__(self, sampler: Sampler):
        self._sampler = sampler
        self._waiting: queue.SimpleQueue[_Batch | Future[None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="sampler", daemon=True)
        self._thread.start()

    def submit(self, requests: Sequence[Request], how: How) -> Future[list[list[Generation]]]:
        """The generations of each request, in order, or what the sampler raised for this stream."""
        batch = _Batch(requests, how, Future())
        self._waiting.put(batch)
        return batch.answer

    def rest(self) -> Future[None]:
        """Done when the stream has ended, after all batches that were submitted before."""
        ended: Future[None] = Future()
        self._waiting.put(ended)
        return ended

    def _serve(self) -> None:
        while True:
            match self._waiting.get():
                case _Batch() as batch:
                    _Stream(self._sampler, self._waiting, batch).run()
                case Future() as ended:
                    ended.set_result(None)


class _Stream:
    """One stream of the sampler and its feed; ends at a `Serving.rest`, or with the last batch before one of another `How`."""

    def __init__(self, sampler: Sampler, waiting: queue.SimpleQueue[_Batch | Future[None]], first: _Batch):
        self._sampler, self._waiting, self._first, self._how = sampler, waiting, first, first.how
        self._next: deque[_Batch | Future[None]] = deque([first])
        self._open: set[_Batch] = set()
        self._owner: dict[Named, _Batch] = {}

    def run(self) -> None:
        how = self._how
        try:
            for request, generations in self._sampler.stream(self, how.max_tokens, how.temperature, how.stop):
                self._finished(request, generations)
        except Exception as error:  # noqa: BLE001 - it goes to whoever waits for an answer
            if self._next and self._next[0] is self._first:  # it did not even come to that
                self._next.popleft()
                self._open.add(self._first)
            for batch in self._open:
                batch.answer.set_exception(error)
        for one in self._next:
            self._waiting.put(one)

    def take(self, idle: bool) -> Sequence[Request]:
        """See `populora.engine.sampling.protocol.Feed`."""
        if not self._next:
            self._look(idle)
        taken: list[Request] = []
        while self._next and isinstance(batch := self._next[0], _Batch) and batch.how == self._how:
            self._next.popleft()
            if batch.requests:
                self._open.add(batch)
            else:
                batch.answer.set_result([])
            self._owner |= {(request.slot, request.key): batch for request in batch.requests}
            taken += batch.requests
            self._look(False)
        return taken

    def _look(self, wait: bool) -> None:
        try:
            self._next.append(self._waiting.get(block=wait))
        except queue.Empty:
            return

    def _finished(self, request: Request, generations: list[Generation]) -> None:
        name = (request.slot, request.key)
        batch = self._owner.pop(name)
        batch.done[name] = generations
        if len(batch.done) == len(batch.requests):
            self._open.remove(batch)  # a stream is long: it would keep the responses of all that it has answered
            batch.answer.set_result([batch.done[one.slot, one.key] for one in batch.requests])
