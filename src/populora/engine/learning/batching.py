"""Group training rows by shared prompt and split them into micro-batches by a token budget."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from populora.core.errors import ConfigError
from populora.engine.model.packing import PromptGroup


class TrainRow(NamedTuple):
    """One response to learn from, under the adapter in ``slot``. A step has a hundred thousand, so it is no dataclass.

    ``logprobs`` (nats) are the sampler's, one for each of ``tokens``. All tokens share one ``advantage``.
    """

    slot: int
    prompt_tokens: Sequence[int]
    tokens: Sequence[int]
    logprobs: Sequence[float]
    advantage: float


@dataclass(frozen=True)
class TrainGroup:
    """Rows that share slot and prompt, so that the prompt is computed once. ``prompt_group`` holds their tokens."""

    prompt_group: PromptGroup
    rows: tuple[TrainRow, ...]


def micro_batches(rows: Sequence[TrainRow], budget: int) -> list[list[TrainGroup]]:
    """Split rows into micro-batches of similar prompt length and at most ``budget`` tokens, each sorted by slot.

    Raises `ConfigError` if a single row exceeds the budget.
    """
    added = [added_tokens(row, budget) for row in rows]
    groups = [
        TrainGroup(PromptGroup(slot, prompt, tuple(rows[index].tokens for index in chunk)), tuple(rows[index] for index in chunk))
        for slot, prompt, indices in rows_by_prompt(rows)
        for chunk, _ in split_by_tokens(indices, added, len(prompt), budget)
    ]
    batches: list[list[TrainGroup]] = []
    filled = budget
    for group in sorted(groups, key=lambda group: (len(group.prompt_group.prompt), group.prompt_group.tokens)):
        if filled + group.prompt_group.tokens > budget:
            batches.append([])
            filled = 0
        batches[-1].append(group)
        filled += group.prompt_group.tokens
    return [sorted(batch, key=lambda group: group.prompt_group.slot) for batch in batches]


def added_tokens(row: TrainRow, budget: int) -> int:
    """Count the tokens of a forward over a row, without its prompt. A response's last token is predicted but never fed.

    Raises `ConfigError` if the row and its prompt exceed ``budget``.
    """
    added = len(row.tokens) - 1
    if len(row.prompt_tokens) + added > budget:
        raise ConfigError(
            f"learner.micro_batch_tokens is {budget}, smaller than one row of {len(row.prompt_tokens) + added} tokens: raise it "
            "or lower the token limits of selfplay"
        )
    return added


def rows_by_prompt(rows: Sequence[TrainRow]) -> list[tuple[int, Sequence[int], list[int]]]:
    """Return the indices of the rows of each slot and prompt."""
    indices: dict[tuple[int, bytes], list[int]] = {}
    for index, row in enumerate(rows):
        indices.setdefault((row.slot, np.asarray(row.prompt_tokens, np.int32).tobytes()), []).append(index)
    return [(slot, rows[of_prompt[0]].prompt_tokens, of_prompt) for (slot, _), of_prompt in indices.items()]


def split_by_tokens(indices: Sequence[int], added: Sequence[int], prompt: int, limit: int) -> Iterator[tuple[list[int], int]]:
    """Split one prompt's rows, in order, into as few parts of at most ``limit`` tokens as possible. Yield each with its tokens.

    ``added`` is `added_tokens` of all rows, ``prompt`` the length of the prompt (0 if they share none). A row that is longer than the limit
    is a part by itself.
    """
    chosen: list[int] = []
    tokens = prompt
    for index in indices:
        if chosen and tokens + added[index] > limit:
            yield chosen, tokens
            chosen, tokens = [], prompt
        chosen.append(index)
        tokens += added[index]
    yield chosen, tokens
