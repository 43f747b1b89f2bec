"""What every sampling backend offers: requests in, generations out, in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from populora.types import Generation, Request


class Sampler(Protocol):
    """A sampling backend. Its results depend on the seed and each request's key, never on scheduling."""

    def generate(self, requests: Sequence[Request], max_tokens: int, temperature: float, stop: str) -> list[list[Generation]]:
        """One inner list of ``samples`` generations per request.

        A response ends with the token that completes the text ``stop``, with an end-of-sequence token, or after
        ``max_tokens`` tokens. Temperature 0 is greedy. Raises `ConfigError`, before any work, for a prompt that does not
        leave room for ``max_tokens`` in the context.
        """
        ...

    def count_tokens(self, prompt: str) -> int:
        """Length of the prompt in tokens."""
        ...
