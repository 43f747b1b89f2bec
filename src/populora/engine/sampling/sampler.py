"""The interface of a sampling backend, and what all backends share: request checks, and batches as streams."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from populora.adapters.adapter import Adapter
from populora.core.errors import ConfigError
from populora.core.types import Generation, Request

RequestKey = tuple[int, tuple[str | int, ...]]
"""Slot and key of a request."""


class RequestSource(Protocol):
    """Supplies a stream with requests while earlier ones are being sampled."""

    def next(self, block: bool) -> Sequence[Request]:
        """Return the requests to start next, each of them once.

        The sampler sets ``block`` when it has nothing else to do: wait until there are requests. Returning none then ends the stream.
        """
        ...


class AdapterSource(Protocol):
    """Holds adapters by slot, as `LoraBank` does."""

    def adapter(self, slot: int) -> Adapter:
        """Return the adapter of a slot, on the CPU."""
        ...


class Sampler(Protocol):
    """A sampling backend. Its results depend on the seed and each request's key, never on scheduling. Backends inherit `generate`."""

    @property
    @abstractmethod
    def decoder(self) -> str:
        """What decodes, in words."""
        ...

    @property
    def independent(self) -> bool:
        """Whether a response is the same to the last bit of its log-probabilities, whatever is decoded with it."""
        return False

    @abstractmethod
    def sync_weights(self, adapters: AdapterSource, slots: Iterable[int]) -> None:
        """Answer later requests for ``slots`` with what ``adapters`` holds for them now.

        Call it between two streams, and for all slots before the first one. The tensors of ``adapters`` stay as they are.
        """
        ...

    def generate(self, requests: Sequence[Request], max_tokens: int, temperature: float, stop: str) -> list[list[Generation]]:
        """Return the ``samples`` generations of each request, in the order of the requests.

        A response ends with the token that completes the text ``stop``, with an end-of-sequence token, or after
        ``max_tokens`` tokens. Temperature 0 is greedy. Raises `ConfigError`, before any work, for a prompt that does not
        leave room for ``max_tokens`` in the context.
        """
        finished = self.stream(StaticRequests(requests), max_tokens, temperature, stop)
        generations = {(request.slot, request.key): samples for request, samples in finished}
        return [generations[request.slot, request.key] for request in requests]

    @abstractmethod
    def stream(self, source: RequestSource, max_tokens: int, temperature: float, stop: str) -> Iterator[tuple[Request, list[Generation]]]:
        """Sample as `generate` does, but ask ``source`` for requests before every token and yield each when its last sample is done."""
        ...


class StaticRequests:
    """A `RequestSource` of requests that all exist from the start."""

    def __init__(self, requests: Sequence[Request]):
        self._requests = requests

    def next(self, block: bool) -> Sequence[Request]:
        requests, self._requests = self._requests, ()
        return requests


def check_sampling(max_tokens: int, temperature: float) -> None:
    """Raise `ConfigError` for an impossible length or temperature."""
    if max_tokens < 1 or temperature < 0:
        raise ConfigError(f"expected max_tokens >= 1 and temperature >= 0, got {max_tokens} and {temperature}")


def check_key(request: Request, keys: set[RequestKey], slots: int) -> None:
    """Add the request's key to ``keys``, those of the stream so far. Raises `ConfigError` for a key among them, or no such slot."""
    if not -1 <= request.slot < slots:
        raise ConfigError(f"request {request.key}: slot {request.slot} does not exist, there are {slots}")
    if (request.slot, request.key) in keys:
        raise ConfigError(f"two requests have the same key {request.key}: they would draw the same random numbers; name them apart")
    keys.add((request.slot, request.key))


def check_request(request: Request, tokens: int, keys: set[RequestKey], context: int, max_tokens: int, slots: int) -> None:
    """Raise `ConfigError` for a request that cannot be answered; ``keys`` as in `check_key`."""
    check_key(request, keys, slots)
    room = context - max_tokens
    if not 0 < tokens <= room:
        raise ConfigError(
            f"request {request.key}: expected a prompt of 1 to {room} tokens (context {context} "
            f"minus {max_tokens} for the response), got {tokens}. Shorten it or lower selfplay.max_response_tokens."
        )
