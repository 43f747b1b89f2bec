"""What all sampling backends ask of their requests, and the stream of requests that are all there at once."""

from __future__ import annotations

from collections.abc import Sequence

from populora.core.errors import ConfigError
from populora.core.types import Generation, Request
from populora.engine.sampling.protocol import Sampler

Named = tuple[int, tuple[str | int, ...]]
"""Slot and key of a request."""


def check_sampling(max_tokens: int, temperature: float) -> None:
    """Raises `ConfigError` for a length or temperature that nothing can be sampled with."""
    if max_tokens < 1 or temperature < 0:
        raise ConfigError(f"expected max_tokens >= 1 and temperature >= 0, got {max_tokens} and {temperature}")


def check_key(request: Request, keys: set[Named]) -> None:
    """Raises `ConfigError` for a key that the stream had before; ``keys`` are those so far, to which it is added."""
    if (request.slot, request.key) in keys:
        raise ConfigError(f"two requests have the same key {request.key}: they would draw the same random numbers; name them apart")
    keys.add((request.slot, request.key))


def check_request(request: Request, tokens: int, keys: set[Named], context: int, max_tokens: int, slots: int) -> None:
    """Raises `ConfigError` for a request that cannot be answered; ``keys`` as in `check_key`."""
    check_key(request, keys)
    room = context - max_tokens
    if not 0 < tokens <= room:
        raise ConfigError(
            f"request {request.key}: expected a prompt of 1 to {room} tokens (context {context} "
            f"minus {max_tokens} for the response), got {tokens}. Shorten it or lower selfplay.max_response_tokens."
        )
    if not -1 <= request.slot < slots:
        raise ConfigError(f"request {request.key}: slot {request.slot} does not exist, there are {slots}")


def all_of(sampler: Sampler, requests: Sequence[Request], max_tokens: int, temperature: float, stop: str) -> list[list[Generation]]:
    """`Sampler.generate` by `Sampler.stream`."""
    done = {(one.slot, one.key): generations for one, generations in sampler.stream(Given(requests), max_tokens, temperature, stop)}
    return [done[request.slot, request.key] for request in requests]


class Given:
    """A feed of requests that are all there at once."""

    def __init__(self, requests: Sequence[Request]):
        self._requests = requests

    def take(self, idle: bool) -> Sequence[Request]:
        given, self._requests = self._requests, ()
        return given
