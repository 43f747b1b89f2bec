"""Split a step's rows into work items that any learner can compute.

A work item is some prompts of one slot with responses to them. A learner joins the rows of all its items and splits them into
micro-batches (`populora.engine.learning.batching`), where responses share their prompt again. So small items cost nothing, and a prompt
is computed twice only where its responses go to two learners.

The split depends on the rows and the number of slots, not on the number of learners. The gradient of a slot is thus a sum over the
same rows on one learner and on eight; only the order of addition differs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from populora.core.errors import PopuloraError
from populora.engine.learning.batching import TrainRow, added_tokens, rows_by_prompt, split_by_tokens

PARTS = 32
"""Prompts are joined up to 1/`PARTS` of a slot's mean load: the granularity of load balancing."""
MAX_SHARE = 4
"""A prompt's responses stay together up to 1/`MAX_SHARE` of a slot's mean load, because splitting them costs the prompt again."""
MIN_PROMPTS = 8
"""Responses are not split into items of fewer tokens than this many times their prompt's."""


@dataclass(frozen=True)
class WorkItem:
    """``rows`` are ascending indices into the step's rows; ``tokens`` counts a forward over them, with each prompt once."""

    rows: tuple[int, ...]
    tokens: int


def split_work(rows: Sequence[TrainRow], budget: int, slots: int, parts: int = PARTS) -> dict[int, list[WorkItem]]:
    """Split rows by slot into items of at most ``budget`` tokens and about 1/``parts`` of the mean load of ``slots`` slots.

    A prompt and its responses stay together unless they exceed the budget, or both 1/`MAX_SHARE` of that mean and `MIN_PROMPTS` prompts.
    Raises `ConfigError` if a row exceeds the budget, and `PopuloraError` for less than one slot, part or prompt token.
    """
    prompts = rows_by_prompt(rows)
    if slots < 1 or parts < 1 or not all(prompt for _, prompt, _ in prompts):
        raise PopuloraError(f"expected at least one slot, one part and a prompt in each row, got {slots} slots and {parts} parts")
    added = [added_tokens(row, budget) for row in rows]
    mean = (sum(len(prompt) for _, prompt, _ in prompts) + sum(added)) / slots
    items: dict[int, list[WorkItem]] = {}
    for slot, prompt, indices in prompts:
        limit = min(budget, max(math.ceil(mean / MAX_SHARE), MIN_PROMPTS * len(prompt)))
        first, *others = [WorkItem(tuple(chunk), tokens) for chunk, tokens in split_by_tokens(indices, added, len(prompt), limit)]
        slot_items = items.setdefault(slot, [])
        _join(slot_items, first, min(budget, math.ceil(mean / parts)))
        slot_items += others  # parts of one prompt stay apart: joined they would count its tokens once
    return items


def _join(items: list[WorkItem], part: WorkItem, limit: int) -> None:
    """Join ``part`` with the last of ``items`` if both have at most ``limit`` tokens together, else append it."""
    if items and items[-1].tokens + part.tokens <= limit:
        part = WorkItem(tuple(sorted(items[-1].rows + part.rows)), items.pop().tokens + part.tokens)
    items.append(part)
