"""A thread that opens a sampler, and samples batches of requests from other threads in one stream of it.

Everything that touches the sampler's engine is done in this thread, because on a GPU each thread has a stream of its own: weights copied by
another thread could be read before they are there.

A batch that arrives while others are sampled joins them. The requests of a batch enter the stream together, so that a batch that is alone
in the stream is always decoded in the same way.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from populora.core.types import Generation, Request
from populora.engine.sampling.sampler import RequestKey, Sampler

T = TypeVar("T")


@dataclass(frozen=True)
class SamplingParams:
    """Arguments of `Sampler.stream`. Batches that differ in them are sampled one after the other."""

    max_tokens: int
    temperature: float
    stop: str


@dataclass(eq=False)
class _Batch:
    requests: Sequence[Request]
    params: SamplingParams
    result: Future[list[list[Generation]]]
    done: dict[RequestKey, list[Generation]] = field(default_factory=dict)


@dataclass(eq=False)
class _Call:
    function: Callable[[], Any]
    result: Future[Any]


Work = _Batch | _Call
"""A batch, or a call that waits for the end of the stream."""


class StreamClosed(Exception):
    """The engine closes."""


class SamplerThread:
    """Runs streams of ``sampler``, which must be set before the first batch, and supplies their requests.

    A stream stays open until a `call`, `end_stream` or a batch of other parameters.
    """

    sampler: Sampler

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._next: Work | None = None
        self._closing = False
        self._batches: dict[RequestKey, _Batch] = {}
        """The unfinished batch of each request in the stream."""
        threading.Thread(target=self._serve, name="sampler", daemon=True).start()

    def submit(self, requests: Sequence[Request], params: SamplingParams) -> Future[list[list[Generation]]]:
        """Sample a batch of at least one request. The result is the generations of each, in order, or the error of the stream."""
        batch = _Batch(requests, params, Future())
        self._queue.put(batch)
        return batch.result

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Call a function in the thread, after the end of the stream with all batches that were submitted before."""
        result: Future[T] = Future()
        self._queue.put(_Call(function, result))
        return result

    def close(self, function: Callable[[], Any]) -> Future[Any]:
        """Break the stream off, and call a function in the thread. Batches in the stream raise `StreamClosed`."""
        self._closing = True
        return self.call(function)

    def end_stream(self) -> Future[None]:
        """End the stream after all batches that were submitted before."""
        return self.call(lambda: None)

    def next(self, block: bool) -> Sequence[Request]:
        """See `populora.engine.sampling.sampler.RequestSource`."""
        if self._next is None:
            self._next = self._poll(block=block)
        if self._closing:
            raise StreamClosed
        taken: list[Request] = []
        while isinstance(batch := self._next, _Batch) and batch.params == self._params:
            self._batches |= {(request.slot, request.key): batch for request in batch.requests}
            taken += batch.requests
            self._next = self._poll(block=False)
        return taken

    def _poll(self, block: bool) -> Work | None:
        try:
            return self._queue.get(block=block)
        except queue.Empty:
            return None

    def _serve(self) -> None:
        while True:
            self._next = work = self._next or self._queue.get()
            if isinstance(work, _Batch):
                self._stream(work)
            else:
                self._next = None
                try:
                    work.result.set_result(work.function())
                except Exception as error:  # noqa: BLE001 - raised where the result is awaited
                    work.result.set_exception(error)

    def _stream(self, first: _Batch) -> None:
        self._params = params = first.params
        try:
            for request, generations in self.sampler.stream(self, params.max_tokens, params.temperature, params.stop):
                self._finish(request, generations)
        except Exception as error:  # noqa: BLE001 - raised where the results are awaited
            failed = set(self._batches.values())
            if self._next is first:  # the sampler failed before it took any request
                failed, self._next = {first}, None
            self._batches.clear()
            for batch in failed:
                batch.result.set_exception(error)

    def _finish(self, request: Request, generations: list[Generation]) -> None:
        batch = self._batches[request.slot, request.key]
        batch.done[request.slot, request.key] = generations
        if len(batch.done) == len(batch.requests):
            names = [(request.slot, request.key) for request in batch.requests]
            for name in names:
                del self._batches[name]  # a stream is long and would keep the responses of finished batches
            batch.result.set_result([batch.done[name] for name in names])
