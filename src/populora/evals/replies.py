"""What an endpoint replied, read without trust: the client library checks nothing of an answer that has the status 200.

The reasoning that a model gives apart from its answer (``reasoning_content``; of newer servers ``reasoning``) is kept apart here, too, and
never read for an answer: what is not said outside of it is not said. A raw completion with ``<think>`` in its text stays as it is, like one
that is sampled here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from populora.core.errors import EndpointError

_REASONING = ("reasoning_content", "reasoning")


@dataclass(frozen=True)
class Reply:
    """What is used of a reply. Counts are in tokens."""

    text: str
    reasoning: str
    finish_reason: str
    prompt_tokens: int
    tokens: int


def reply_of(reply: Any, chat: bool) -> Reply:
    """The first choice of a reply of the chat route, or of the completions route. A ``content`` that is null is an empty text.

    Raises `EndpointError` for what is no reply.
    """
    choices = getattr(reply, "choices", None)
    if not isinstance(choices, list) or not choices:
        raise _unexpected("a completion with a choice", reply)
    choice = choices[0]
    said, name = (getattr(choice, "message", None), "content") if chat else (choice, "text")
    text = getattr(said, name, 0)
    if text is None and chat:
        text = ""
    if not isinstance(text, str):
        raise _unexpected("a choice with a message and its content" if chat else "a choice with a text", reply)
    reasoning = next((found for one in _REASONING if isinstance(found := getattr(said, one, None), str)), "")
    finish, usage = getattr(choice, "finish_reason", None), getattr(reply, "usage", None)
    counts = [count if isinstance(count := getattr(usage, one, 0), int) else 0 for one in ("prompt_tokens", "completion_tokens")]
    return Reply(text, reasoning, finish if isinstance(finish, str) else "", *counts)


def _unexpected(wanted: str, reply: Any) -> EndpointError:
    return EndpointError(f"expected {wanted}, got {reply!r:.200}; is the address the API's, such as http://host:8000/v1?")
