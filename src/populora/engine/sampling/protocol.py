"""What every sampling backend offers: requests in, generations out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from populora.adapters.adapter import Adapter
from populora.core.types import Generation, Request


class Feed(Protocol):
    """Where a stream's requests come from while others are being sampled."""

    def take(self, idle: bool) -> Sequence[Request]:
        """Requests to start next, each handed out once. An ``idle`` sampler has nothing else to do: wait for some; none ends the stream."""
        ...


class Adapters(Protocol):
    """Where a sampler finds adapters by slot; a `LoraBank` is one."""

    def adapter(self, slot: int) -> Adapter:
        """The adapter of a slot, on the CPU."""
        ...


class Sampler(Protocol):
    """A sampling backend. Its results depend on the seed and each request's key, never on scheduling."""

    def publish(self, adapters: Adapters, slots: Iterable[int]) -> None:
        """The adapters of these slots have changed: from now on requests are answered with what ``adapters`` has for them.

        To be called between two streams, and for all slots before the first. The tensors of ``adapters`` stay as they are.
        """
        ...

    def generate(self, requests: Sequence[Request], max_tokens: int, temperature: float, stop: str) -> list[list[Generation]]:
        """One inner list of ``samples`` generations per request, in the order of the requests.

        A response ends with the token that completes the text ``stop``, with an end-of-sequence token, or after
        ``max_tokens`` tokens. Temperature 0 is greedy. Raises `ConfigError`, before any work, for a prompt that does not
        leave room for ``max_tokens`` in the context.
        """
        ...

    def stream(self, feed: Feed, max_tokens: int, temperature: float, stop: str) -> Iterator[tuple[Request, list[Generation]]]:
        """As `generate`, but requests are asked for before every token, and each is given back when its last sample is done."""
        ...

    def count_tokens(self, prompt: str) -> int:
        """Length of the prompt in tokens."""
        ...
