"""What packing and shared prompts save in training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import torch
from sampling import lengths
from timing import Case
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from populora.engine.model.model import AdaptedModel
from populora.engine.model.packing import PromptGroup, pack

PROMPT = 32


def learn(adapted: AdaptedModel, groups: list[PromptGroup]) -> Case:
    """One forward and backward of the groups."""

    def run() -> None:
        adapted.logprobs(pack(groups, adapted.device))[0].sum().backward()

    return run


def uneven(slots: int, rows: int = 32) -> tuple[list[PromptGroup], float]:
    """Rows of log-normal lengths (mean 121, at most 396), and the share of a padded rectangle that they fill."""
    sizes = [max(PROMPT + 2, length) for length in lengths(rows, 121, 396)]
    draw = np.random.default_rng(0)
    groups = [
        PromptGroup(at * slots // rows, draw.integers(2, 512, PROMPT).tolist(), (draw.integers(2, 512, size - PROMPT + 1).tolist(),))
        for at, size in enumerate(sizes)
    ]
    return groups, sum(sizes) / (rows * max(sizes))


@dataclass(frozen=True)
class Padded:
    """Attention as transformers computes it over a rectangle of ``rows`` sequences, with its mask over what is padding."""

    rows: int
    mask: torch.Tensor

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scaling: float) -> torch.Tensor:
        """q [N, heads, d], k and v [N, kv heads, d] -> [N, heads, d]."""
        module = SimpleNamespace(num_key_value_groups=q.shape[1] // k.shape[1], is_causal=True)
        queries, keys, values = (x.unflatten(0, (self.rows, -1)).transpose(1, 2) for x in (q, k, v))
        return sdpa_attention_forward(module, queries, keys, values, self.mask, scaling=scaling)[0].flatten(0, 1)  # type: ignore[arg-type]


def padded(adapted: AdaptedModel, groups: list[PromptGroup]) -> Case:
    """One forward and backward of the same rows in a rectangle as wide as the longest, attended over as transformers does."""
    longest = max(len(group.responses[0]) for group in groups)
    filled = [replace(group, responses=([*group.responses[0], *[0] * (longest - len(group.responses[0]))],)) for group in groups]
    width = filled[0].tokens
    real = torch.arange(width) < torch.tensor([group.tokens for group in groups])[:, None]
    plan = Padded(len(groups), torch.ones(width, width, dtype=torch.bool).tril() & real[:, None, None])

    def run() -> None:
        packed = replace(pack(filled), plan=plan)  # type: ignore[arg-type]
        (adapted.logprobs(packed)[0].view(len(groups), -1) * real[:, PROMPT - 1 :]).sum().backward()

    return run


def shared(slots: int, prompt: int, response: int, samples: int = 8) -> tuple[list[PromptGroup], list[PromptGroup]]:
    """The same rows, with each prompt once for its samples and once for each of them."""
    draw = np.random.default_rng(0)
    together = [
        PromptGroup(slot, draw.integers(2, 512, prompt).tolist(), tuple(draw.integers(2, 512, (samples, response)).tolist()))
        for slot in range(slots)
    ]
    return together, [PromptGroup(group.slot, group.prompt, (one,)) for group in together for one in group.responses]
