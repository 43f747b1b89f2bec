"""Rows to learn from, grouped by shared prompt and cut into micro-batches by a token budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from populora.core.errors import ConfigError
from populora.engine.model.packing import Group


@dataclass(frozen=True)
class TrainRow:
    """One response to learn from, under the adapter in ``slot``.

    ``logprobs`` are the sampler's, one (nats) for each of ``tokens``, which share one ``advantage``.
    """

    slot: int
    prompt_tokens: Sequence[int]
    tokens: Sequence[int]
    logprobs: Sequence[float]
    advantage: float


@dataclass(frozen=True)
class Unit:
    """Rows that share slot and prompt, so that the prompt is computed once."""

    group: Group
    rows: tuple[TrainRow, ...]


def micro_batches(rows: Sequence[TrainRow], budget: int) -> list[list[Unit]]:
    """Units of similar prompt length, at most ``budget`` tokens a micro-batch, sorted by slot inside each.

    Raises `ConfigError` if a single row exceeds the budget.
    """
    batches: list[list[Unit]] = []
    filled = budget
    for unit in sorted(_units(rows, budget), key=lambda unit: (len(unit.group.prompt), unit.group.tokens)):
        if filled + unit.group.tokens > budget:
            batches.append([])
            filled = 0
        batches[-1].append(unit)
        filled += unit.group.tokens
    return [sorted(batch, key=lambda unit: unit.group.slot) for batch in batches]


def added_tokens(row: TrainRow, budget: int) -> int:
    """Tokens of a forward over a row, without its prompt: a response's last token is predicted but never fed.

    Raises `ConfigError` if the row and its prompt exceed ``budget``.
    """
    added = len(row.tokens) - 1
    if len(row.prompt_tokens) + added > budget:
        raise ConfigError(
            f"learner.micro_batch_tokens is {budget}, smaller than one row of {len(row.prompt_tokens) + added} tokens: raise it "
            "or lower the token limits of selfplay"
        )
    return added


def _units(rows: Sequence[TrainRow], budget: int) -> list[Unit]:
    sharing: dict[tuple[int, tuple[int, ...]], list[TrainRow]] = {}
    for row in rows:
        sharing.setdefault((row.slot, tuple(row.prompt_tokens)), []).append(row)
    units: list[Unit] = []
    for (slot, prompt), members in sharing.items():
        chosen: list[TrainRow] = []
        size = len(prompt)
        for row in members:
            added = added_tokens(row, budget)
            if size + added > budget:
                units.append(_unit(slot, prompt, chosen))
                chosen, size = [], len(prompt)
            chosen.append(row)
            size += added
        units.append(_unit(slot, prompt, chosen))
    return units


def _unit(slot: int, prompt: tuple[int, ...], rows: Sequence[TrainRow]) -> Unit:
    return Unit(Group(slot, prompt, tuple(row.tokens for row in rows)), tuple(rows))
