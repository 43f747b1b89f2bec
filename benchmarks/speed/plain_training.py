"""The plain composition's update: PEFT, one adapter after the other, padded batches, log-softmax over all logits, torch's AdamW.

Advantages, old log-probabilities, clipping, truncation and denominators are those of populora's update, so the adapters must become
the same. Batches hold rows of similar length and as many tokens as populora's micro-batches, the padding counted; they are padded
behind the last token that attends, and so need no attention mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from composition import Composition
from padding import padded

from populora.core.config import LearnerConfig
from populora.engine.learning.batching import TrainRow


def train(made: Composition, rows: Sequence[TrainRow], config: LearnerConfig) -> None:
    """One update of each adapter that has an advantage to learn from."""
    for slot, optimiser in made.optimisers.items():
        own = [row for row in rows if row.slot == slot]
        if any(row.advantage for row in own):
            made.model.set_adapter(str(slot))
            optimiser.zero_grad()
            tokens = sum(len(row.tokens) for row in own)
            for batch in micro_batches(own, config.micro_batch_tokens):
                (loss(made.model, batch, config) / tokens).backward()
            torch.nn.utils.clip_grad_norm_(made.parameters(slot).values(), config.grad_clip)
            optimiser.step()


def loss(model: Any, rows: Sequence[TrainRow], config: LearnerConfig) -> torch.Tensor:
    """Sum over the rows' response tokens."""
    ids = padded([[*row.prompt_tokens, *row.tokens] for row in rows], 0)
    prompts = [[0.0] * (len(row.prompt_tokens) - 1) for row in rows]
    old = padded([[*prompt, *row.logprobs] for prompt, row in zip(prompts, rows, strict=True)], 0.0)
    answer = padded([[*prompt, *[1.0] * len(row.tokens)] for prompt, row in zip(prompts, rows, strict=True)], 0.0)
    log_p = model(input_ids=ids[:, :-1], use_cache=False).logits.log_softmax(-1).gather(2, ids[:, 1:, None])[:, :, 0]
    ratio = ((log_p - old) * answer).exp()
    advantages = torch.tensor([row.advantage for row in rows])[:, None]
    surrogate = torch.min(ratio * advantages, ratio.clamp(1.0 - config.clip_low, 1.0 + config.clip_high) * advantages)
    truncation = ratio.detach().clamp(max=config.tis_cap) / ratio.detach()
    return -(surrogate * truncation * answer).sum()


def micro_batches(rows: Sequence[TrainRow], budget: int) -> Iterator[list[TrainRow]]:
    """Rows of similar length, at most ``budget`` tokens a batch with the padding."""
    batch: list[TrainRow] = []
    for row in sorted(rows, key=length):
        if (len(batch) + 1) * length(row) > budget:
            yield batch
            batch = []
        batch.append(row)
    yield batch


def length(row: TrainRow) -> int:
    """Tokens of its forward: the last one is predicted but never fed."""
    return len(row.prompt_tokens) + len(row.tokens) - 1
