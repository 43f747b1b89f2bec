"""A step's rows in pieces that one learner can compute for another.

A piece is some prompts of one slot with responses to them. It says who computes a row, not how: a learner puts the rows of all its
pieces together again, and `batching` cuts them into micro-batches, where responses that meet share their prompt. So
fine pieces cost nothing where they stay, and a prompt is computed twice only where its responses go to two learners.

The cut depends on the rows and the number of slots alone, not on the number of learners: the gradient of a slot is a sum over the same
rows on one learner and on eight, and differs by the order of addition.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from populora.core.errors import PopuloraError
from populora.engine.learning.batching import TrainRow, added_tokens

PARTS = 32
"""Prompts are put together up to this share of a slot's mean load: the steps in which loads can be evened out."""
WHOLE = 4
"""A prompt's responses stay together up to this share of a slot's mean load: parting them costs the prompt again."""
ANEW = 8
"""They are not parted into pieces of fewer tokens than this many prompts."""


@dataclass(frozen=True)
class Piece:
    """``rows`` are indices into the step's rows, ascending; ``tokens`` those of a forward over them, with each prompt once."""

    rows: tuple[int, ...]
    tokens: int


def cut(rows: Sequence[TrainRow], budget: int, slots: int, parts: int = PARTS) -> dict[int, list[Piece]]:
    """Pieces by slot, each row in one of them: at most ``budget`` tokens each, and about 1/``parts`` of the mean load of ``slots`` slots.

    A prompt and its responses stay together unless they exceed the budget, or both 1/`WHOLE` of that mean and `ANEW` prompts. Raises
    `ConfigError` if a row exceeds the budget, and `PopuloraError` for less than one slot, part or prompt token.
    """
    prompts: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for index, row in enumerate(rows):
        prompts.setdefault((row.slot, tuple(row.prompt_tokens)), []).append(index)
    if slots < 1 or parts < 1 or not all(prompt for _, prompt in prompts):
        raise PopuloraError(f"expected at least one slot, one part and a prompt in each row, got {slots} slots and {parts} parts")
    added = [added_tokens(row, budget) for row in rows]
    mean = (sum(len(prompt) for _, prompt in prompts) + sum(added)) / slots
    pieces: dict[int, list[Piece]] = {}
    for (slot, prompt), members in prompts.items():
        limit = min(budget, max(math.ceil(mean / WHOLE), ANEW * len(prompt)))
        first, *others = _parts(members, added, len(prompt), limit)
        own = pieces.setdefault(slot, [])
        _join(own, first, min(budget, math.ceil(mean / parts)))
        own += others  # parts of one prompt stay apart: together they would have its tokens once
    return pieces


def _parts(members: Sequence[int], added: Sequence[int], prompt: int, limit: int) -> Iterator[Piece]:
    """One prompt's rows in as few pieces of at most ``limit`` tokens as their order allows; a row that is longer is a piece of its own."""
    chosen: list[int] = []
    tokens = prompt
    for index in members:
        if chosen and tokens + added[index] > limit:
            yield Piece(tuple(chosen), tokens)
            chosen, tokens = [], prompt
        chosen.append(index)
        tokens += added[index]
    yield Piece(tuple(chosen), tokens)


def _join(pieces: list[Piece], part: Piece, limit: int) -> None:
    """Add ``part`` to the last of ``pieces`` if both together have at most ``limit`` tokens, else after it."""
    if pieces and pieces[-1].tokens + part.tokens <= limit:
        part = Piece(tuple(sorted(pieces[-1].rows + part.rows)), pieces.pop().tokens + part.tokens)
    pieces.append(part)
