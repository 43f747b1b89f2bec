"""What a document for pretraining is, in any language."""

from dataclasses import dataclass
from typing import Any

import numpy as np

Piece = tuple[str, float]
"""Text of a response and its loss weight."""


@dataclass(frozen=True)
class Document:
    """One training document; the loss on the prompt is light."""

    kind: str
    prompt: str
    pieces: tuple[Piece, ...]

    @property
    def response(self) -> str:
        return "".join(text for text, _ in self.pieces)


def weighted(rng: np.random.Generator, weights: dict) -> Any:
    """Draw a key; the values are weights."""
    total = sum(weights.values())
    return list(weights)[int(rng.choice(len(weights), p=[weight / total for weight in weights.values()]))]


def fenced(tag: str, text: str) -> str:
    return f"```{tag}\n{text}\n```"


def answer(content: str) -> str:
    """The end of a response."""
    return f"</think><answer>{content}</answer>"
