"""The plain composition's sampling: transformers' ``generate`` on PEFT's model, one adapter after the other.

``generate`` runs with all its machinery, but its last processor leaves one token to draw: the one that populora drew. So the work is
the same tokens, and a row ends where it ended; as always the others go on until the longest is done. Nothing looks for the stop text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from composition import Composition
from padding import padded
from replay import Taken
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from populora.core.types import Generation

Responses = dict[int, list[Generation]]
"""By slot."""


def drawn(taken: Taken) -> Responses:
    """All responses of the step, those with short prompts first."""
    slots = {member.id: member.slot for member in taken.record.members}
    found: Responses = {slot: [] for slot in slots.values()}
    for proposal in taken.record.proposals:
        found[slots[proposal.author]].append(proposal.generation)
    for attempt in taken.record.attempts:
        found[slots[attempt.student]].append(attempt.generation)
    return {slot: sorted(own, key=lambda one: len(one.prompt_tokens)) for slot, own in found.items()}


def sample(made: Composition, responses: Responses, rows: int, most: int) -> None:
    """Each adapter's responses, ``rows`` at a time, of at most ``most`` tokens. Stops if others are written than were drawn."""
    for slot, own in responses.items():
        made.model.set_adapter(str(slot))
        for start in range(0, len(own), rows):
            generate(made.model, own[start : start + rows], most)


def generate(model: Any, responses: Sequence[Generation], most: int) -> None:
    pad, start = model.generation_config.pad_token_id, max(len(one.prompt_tokens) for one in responses)
    ids = padded([one.prompt_tokens for one in responses], pad, "left")
    mask = padded([[1] * len(one.prompt_tokens) for one in responses], 0, "left")
    targets = padded([one.tokens for one in responses], pad)
    lengths = torch.tensor([len(one.tokens) for one in responses])
    written = model.generate(
        input_ids=ids, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0, max_new_tokens=most,
        logits_processor=LogitsProcessorList([Forced(targets, start)]), stopping_criteria=StoppingCriteriaList([Ended(lengths, start)]),
    )[:, start:]  # fmt: skip
    if not torch.equal(written, targets):
        raise SystemExit(f"generate wrote other tokens than were drawn, {tuple(written.shape)} instead of {tuple(targets.shape)}")


class Forced(LogitsProcessor):
    """Leaves one token to draw. ``targets`` [rows, longest] begin at position ``start``."""

    def __init__(self, targets: torch.Tensor, start: int):
        self.targets, self.start = targets, start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        token = self.targets[:, input_ids.shape[1] - self.start, None]
        return torch.full_like(scores, -torch.inf).scatter_(1, token, 0.0)


class Ended(StoppingCriteria):
    """A row is over after its length, ``lengths`` [rows]."""

    def __init__(self, lengths: torch.Tensor, start: int):
        self.lengths, self.start = lengths, start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **options: Any) -> torch.Tensor:
        return input_ids.shape[1] - self.start >= self.lengths
