"""Causal attention over packed rows with shared prompts, as a function that any Hugging Face causal LM can call.

The function is registered with transformers' attention interface and gets an explicit plan with each forward, so the model code stays
unchanged. There are two kinds of plan. One is of prompts and their responses in one packed row, for learning and prefill:
`PackedAttention`, in C `populora.engine.native.attention`, on CUDA `flex`. The other is of one new token of each response: `decode_cache`,
on CUDA `paged`. A prompt is computed once for all its responses.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from transformers import AttentionInterface

from populora.core.errors import BaseModelError

NAME = "populora"
KeyValues = tuple[torch.Tensor, torch.Tensor]


class AttentionPlan(Protocol):
    """Defines which tokens of the packed row attend to which."""

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scaling: float) -> torch.Tensor:
        """Map q [N, heads, d], k and v [N, kv heads, d] to [N, heads, d]."""
        ...


@dataclass(frozen=True)
class Block:
    """A rectangle of ``rows`` sequences padded to ``length`` tokens, each of which attends to itself.

    With ``group`` [rows] each also attends to the prompt of that number, where ``mask`` [rows, 1, length, P + length] is true.
    """

    rows: int
    length: int
    group: torch.Tensor | None = None
    mask: torch.Tensor | None = None


@dataclass(frozen=True)
class PackedAttention:
    """Causal attention in the packed row: each prompt to itself, each response to its prompt and itself.

    A prompt with one response is one sequence. ``order`` [M] indexes the packed row block by block. Padding repeats a real token, is
    never read and so gets no gradient. ``inverse`` [N] is the index of each token among those M. Both are None if the packed
    row already consists of the blocks. Prompts [G] that have several responses, or are kept, are the first block. With ``keep``,
    ``kept`` receives their (K, V) [G, kv heads, P, d] of each layer. ``masks`` caches the blocks' masks.
    """

    order: torch.Tensor | None
    inverse: torch.Tensor | None
    blocks: tuple[Block, ...]
    keep: bool = False
    kept: dict[int, KeyValues] = field(default_factory=dict)
    masks: dict[int, torch.Tensor] = field(default_factory=dict)

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scaling: float) -> torch.Tensor:
        """Map q [N, heads, d], k and v [N, kv heads, d] to [N, heads, d]."""
        queries, keys, values = (self._padded(x) for x in (q, k, v))
        if self.keep:
            self.kept[layer] = (keys[0], values[0])
        results: list[torch.Tensor] = []
        for index, block in enumerate(self.blocks):
            seen_k, seen_v = (x[index] if block.group is None else _with_prompt(x, index, block.group) for x in (keys, values))
            mask = self._mask(index, q.shape[1] // k.shape[1], q.dtype)
            results.append(_sdpa(queries[index], seen_k, seen_v, mask, scaling).transpose(1, 2).flatten(0, 1))
        joined = results[0] if len(results) == 1 else torch.cat(results)
        return joined if self.inverse is None else _Unpad.apply(joined, self.inverse)

    def _mask(self, index: int, repeats: int, dtype: torch.dtype) -> torch.Tensor | None:
        """Return the mask of a block for `_sdpa`, computed once for all layers."""
        mask = self.blocks[index].mask
        if mask is not None and index not in self.masks:
            added = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, -torch.inf)
            self.masks[index] = added.repeat(1, 1, repeats, 1)
        return self.masks.get(index)

    def _padded(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Split x [N, heads, d] into padded blocks [rows, heads, length, d]."""
        padded = x if self.order is None else _Pad.apply(x, self.order, self.inverse)
        parts = padded.split([block.rows * block.length for block in self.blocks])
        return [part.view(b.rows, b.length, *x.shape[1:]).transpose(1, 2) for b, part in zip(self.blocks, parts, strict=True)]


class _Pad(torch.autograd.Function):
    """Computes ``x[order]``. Its backward may gather instead of accumulate, because padding never carries a gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, order: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(inverse)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads[0].index_select(0, ctx.saved_tensors[0]), None, None


class _Unpad(torch.autograd.Function):
    """Computes ``y[inverse]`` for distinct indices, so that its backward writes instead of accumulating."""

    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(inverse)
        ctx.rows = len(y)
        return y.index_select(0, inverse)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        grad = grads[0]
        return grad.new_zeros(ctx.rows, *grad.shape[1:]).index_copy_(0, ctx.saved_tensors[0], grad), None


def _with_prompt(blocks: list[torch.Tensor], index: int, group: torch.Tensor) -> torch.Tensor:
    """Prepend to block ``index`` the prompts of its rows: [rows, kv heads, P + length, d]."""
    return torch.cat((blocks[0].index_select(0, group), blocks[index]), 2)


def _sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, scaling: float) -> torch.Tensor:
    """Compute attention of [rows, heads, T, d], causal without a mask.

    With ``mask`` [rows, 1, repeats T, ..] the query heads that share keys are stacked: masked GQA has no fast kernel on CPUs, and
    repeating the keys would copy them.
    """
    repeats = q.shape[1] // k.shape[1]
    if mask is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling, enable_gqa=repeats > 1)
    stacked = q.unflatten(1, (-1, repeats)).flatten(2, 3)
    return F.scaled_dot_product_attention(stacked, k, v, attn_mask=mask, scale=scaling).unflatten(2, (repeats, -1)).flatten(1, 2)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    attention_plan: AttentionPlan | None = None,
    **unused: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention for transformers: [1, heads, N, d] queries in, [1, N, heads, d] out."""
    if attention_plan is None:
        raise BaseModelError("this model carries populora's adapters: call it through AdaptedModel, which knows the attention plan")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    return attention_plan.attend(int(module.layer_idx), q, k, v, scale)[None], None  # type: ignore[arg-type]


AttentionInterface.register(NAME, attend)
