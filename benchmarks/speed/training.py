"""Cases of training: a mixed batch beside PEFT and the bare base; packing beside padding; prompts shared by samples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from benchmarks.measuring import Case
from benchmarks.speed.models import adapted_model
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.packing import PromptGroup, pack

ROW = 64
"""Tokens of a row: half prompt, half response."""
PROMPT = 32
"""Tokens of a prompt in rows of uneven length."""


def batch(slots: Sequence[int], seed: int = 0, row: int = ROW) -> list[PromptGroup]:
    """Return a row of ``row`` tokens for each entry of ``slots``, those of a slot one after the other."""
    generator = torch.Generator().manual_seed(seed)
    draws = torch.randint(2, 512, (len(slots), row + 1), generator=generator).tolist()
    return [PromptGroup(slot, draw[: row // 2], (draw[row // 2 :],)) for slot, draw in zip(sorted(slots), draws, strict=True)]


def bare(shape: str, rows: int) -> Case:
    """Run the same forward without adapters, and the backward down to the first layer's projections."""
    adapted = adapted_model(shape, 1)
    groups = batch([-1] * rows)
    attention = adapted.backbone.layers[0].self_attn
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.register_forward_hook(lambda module, inputs, output: output.requires_grad_())
    return lambda: adapted.logprobs(pack(groups))[0].sum().backward()


def plain_loss(model: Any, ids: torch.Tensor, **options: Any) -> torch.Tensor:
    """Return the sum of the responses' log-probabilities, from all logits."""
    logits = model(input_ids=ids[:, :-1], use_cache=False, **options).logits[:, ROW // 2 - 1 :]
    return logits.log_softmax(-1).gather(2, ids[:, ROW // 2 :, None]).sum()


def peft_sequential(model: Any, slots: Sequence[int]) -> Case:
    """Train with PEFT, one adapter at a time."""
    groups = batch(slots)
    responses = {
        slot: torch.tensor([[*group.prompt, *group.responses[0]] for group in groups if group.slot == slot]) for slot in sorted(set(slots))
    }

    def run() -> None:
        model.zero_grad()
        for slot, ids in responses.items():
            model.set_adapter(str(slot))
            plain_loss(model, ids).backward()

    return run


def learn(adapted: AdaptedModel, groups: list[PromptGroup]) -> Case:
    """Run forward and backward of the groups, packed into one row, for all their adapters at once."""

    def run() -> None:
        adapted.bank.gradient.zero_()
        adapted.logprobs(adapted.pack(groups))[0].sum().backward()

    return run


def lengths(count: int, mean: float, longest: int) -> list[int]:
    """Return log-normal lengths, as responses have them, with that mean after lengths above ``longest`` are cut."""
    draws = np.random.default_rng(1).lognormal(0.0, 1.0, count)
    scale, cut = mean, draws
    for _ in range(20):
        cut = np.clip(np.round(draws * scale), 1, longest)
        scale *= mean / cut.mean()
    return cut.astype(int).tolist()


def uneven(slots: int, rows: int = 32) -> tuple[list[PromptGroup], float]:
    """Return rows of log-normal lengths (mean 121, at most 396), and the share of a padded rectangle that they fill."""
    sizes = [max(PROMPT + 2, length) for length in lengths(rows, 121, 396)]
    draw = np.random.default_rng(0)
    groups = [
        PromptGroup(at * slots // rows, draw.integers(2, 512, PROMPT).tolist(), (draw.integers(2, 512, size - PROMPT + 1).tolist(),))
        for at, size in enumerate(sizes)
    ]
    return groups, sum(sizes) / (rows * max(sizes))


@dataclass(frozen=True)
class Padded:
    """Attention as transformers computes it over a rectangle of ``rows`` sequences, with a mask over the padding."""

    rows: int
    mask: torch.Tensor

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scaling: float) -> torch.Tensor:
        """q [N, heads, d], k and v [N, kv heads, d] -> [N, heads, d]."""
        module = SimpleNamespace(num_key_value_groups=q.shape[1] // k.shape[1], is_causal=True)
        queries, keys, values = (x.unflatten(0, (self.rows, -1)).transpose(1, 2) for x in (q, k, v))
        return sdpa_attention_forward(module, queries, keys, values, self.mask, scaling=scaling)[0].flatten(0, 1)  # type: ignore[arg-type]


def padded(adapted: AdaptedModel, groups: list[PromptGroup]) -> Case:
    """Run forward and backward of the same rows in a rectangle as wide as the longest."""
    longest = max(len(group.responses[0]) for group in groups)
    filled = [replace(group, responses=([*group.responses[0], *[0] * (longest - len(group.responses[0]))],)) for group in groups]
    width = filled[0].tokens
    real = torch.arange(width) < torch.tensor([group.tokens for group in groups])[:, None]
    plan = Padded(len(groups), torch.ones(width, width, dtype=torch.bool).tril() & real[:, None, None])

    def run() -> None:
        adapted.bank.gradient.zero_()
        packed = replace(pack(filled), plan=plan)  # type: ignore[arg-type]
        (adapted.logprobs(packed)[0].view(len(groups), -1) * real[:, PROMPT - 1 :]).sum().backward()

    return run


def shared(slots: int, prompt: int, response: int, samples: int = 8) -> tuple[list[PromptGroup], list[PromptGroup]]:
    """Return the same rows twice: with each prompt once for its samples, and once for each sample."""
    draw = np.random.default_rng(0)
    together = [
        PromptGroup(slot, draw.integers(2, 512, prompt).tolist(), tuple(draw.integers(2, 512, (samples, response)).tolist()))
        for slot in range(slots)
    ]
    return together, [PromptGroup(group.slot, group.prompt, (response,)) for group in together for response in group.responses]
