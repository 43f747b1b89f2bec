"""Causal attention over packed rows that share prompts: one function that any Hugging Face causal LM can call.

It is registered with transformers' attention interface and is handed an explicit plan with each forward; the model code
itself stays untouched. Two plans: `PackedAttention` (prompts and their responses in one packed row: learning, prefill) and
`DecodeAttention` (one new token per response). In both a prompt's keys exist once for all its responses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from transformers import AttentionInterface

from populora.errors import BaseModelError

NAME = "populora"
KeyValues = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Block:
    """A rectangle of ``rows`` sequences padded to ``length`` tokens. Each attends to itself; with ``group`` [rows] also to the
    prompt of that number, and ``mask`` [rows, 1, length, P + length] is true where it attends."""

    rows: int
    length: int
    group: torch.Tensor | None = None
    mask: torch.Tensor | None = None


@dataclass(frozen=True)
class PackedAttention:
    """Causal attention in the packed row: each prompt to itself, each response to its prompt and itself.

    A prompt with one response is one sequence. ``order`` [M] indexes the packed row block by block; padding repeats a real token,
    is never read and so gets no gradient. ``place`` [N] is the inverse: where each token lies in those M. Both are None where
    the packed row is the blocks as it stands. The first ``prompts`` blocks (0 or 1) are the prompts [G] that several responses
    share; with ``keep``, ``kept`` receives their (K, V) [G, kv heads, P, d] of each layer.
    """

    order: torch.Tensor | None
    place: torch.Tensor | None
    prompts: int
    blocks: tuple[Block, ...]
    keep: bool = False
    kept: dict[int, KeyValues] = field(default_factory=dict)

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scaling: float) -> torch.Tensor:
        """q [N, heads, d], k and v [N, kv heads, d] -> [N, heads, d]."""
        queries, keys, values = (self._padded(x) for x in (q, k, v))
        if self.keep:
            self.kept[layer] = (keys[0], values[0])
        results: list[torch.Tensor] = []
        for at, block in enumerate(self.blocks):
            seen = (keys[at], values[at])
            if block.group is not None:
                seen = tuple(torch.cat((own[0].index_select(0, block.group), own[at]), 2) for own in (keys, values))
            results.append(_sdpa(queries[at], *seen, block.mask, scaling).transpose(1, 2).flatten(0, 1))
        joined = results[0] if len(results) == 1 else torch.cat(results)
        return joined if self.place is None else _Unpad.apply(joined, self.place)

    def _padded(self, x: torch.Tensor) -> list[torch.Tensor]:
        """[N, heads, d] -> blocks [rows, heads, length, d]."""
        laid = x if self.order is None else _Pad.apply(x, self.order, self.place)
        parts = laid.split([block.rows * block.length for block in self.blocks])
        return [part.view(b.rows, b.length, *x.shape[1:]).transpose(1, 2) for b, part in zip(self.blocks, parts, strict=True)]


class DecodeAttention:
    """One new token for each of N live responses: attention to the shared prompt and to the response's own cache.

    ``prefixes`` are the prompts' (K, V) per layer as `PackedAttention` kept them, with ``lengths`` [G]; ``group`` [N] is each
    row's prompt (ascending, so that a prompt's rows are neighbours). `step` must be called before each forward.
    """

    GROW = 32  # columns the own cache starts with; doubled whenever full

    def __init__(self, prefixes: dict[int, KeyValues], lengths: torch.Tensor, group: torch.Tensor):
        self.lengths, self.group, self.column, self.capacity = lengths, group, -1, self.GROW
        self.prefixes = {layer: (keys.mT.contiguous(), values.contiguous()) for layer, (keys, values) in prefixes.items()}
        self.own = {layer: (self._empty(keys), self._empty(values)) for layer, (keys, values) in prefixes.items()}
        self._index()

    def step(self) -> torch.Tensor:
        """Open the next column; returns the new tokens' positions [N]."""
        self.column += 1
        if self.column == self.capacity:
            more = (0, 0, 0, self.capacity)
            self.own = {layer: (F.pad(k, more), F.pad(v, more)) for layer, (k, v) in self.own.items()}
            self.capacity *= 2
        return self.lengths[self.group] + self.column

    def keep_rows(self, rows: torch.Tensor) -> None:
        """Drop all responses but ``rows`` (ascending), and the prompts that no row needs any more."""
        groups, self.group = torch.unique(self.group[rows], return_inverse=True)
        self.own = {layer: (k.index_select(0, rows), v.index_select(0, rows)) for layer, (k, v) in self.own.items()}
        if len(groups) < len(self.lengths):
            self.lengths = self.lengths[groups]
            self.prefixes = {at: (k.index_select(0, groups), v.index_select(0, groups)) for at, (k, v) in self.prefixes.items()}
        self._index()

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scaling: float) -> torch.Tensor:
        """q [N, heads, d], k and v [N, kv heads, d] -> [N, heads, d]."""
        rows, heads, size = q.shape
        kv_heads, end = k.shape[1], self.column + 1
        own_k, own_v = self.own[layer]
        own_k[:, :, self.column], own_v[:, :, self.column] = k, v
        prefix_k, prefix_v = self.prefixes[layer]
        queries = q.view(rows, kv_heads, heads // kv_heads, size) * scaling
        shared = self._from_grid(self._to_grid(queries) @ prefix_k + self.padding, rows)
        scores = torch.cat((shared, queries @ own_k[:, :, :end].mT), 3).softmax(3)
        weights, own_weights = scores.split((prefix_k.shape[3], end), 3)
        mixed = self._from_grid(self._to_grid(weights) @ prefix_v, rows)
        return (mixed + own_weights @ own_v[:, :, :end]).reshape(rows, heads, size)

    def _empty(self, like: torch.Tensor) -> torch.Tensor:
        return like.new_zeros(len(self.group), like.shape[1], self.capacity, like.shape[3])

    def _index(self) -> None:
        """The grid [G, width]: a prompt's rows side by side, so that one product serves them all."""
        counts = torch.bincount(self.group, minlength=len(self.lengths))
        self.width = int(counts.max())
        first = counts.cumsum(0) - counts
        self.cell = self.group * self.width + torch.arange(len(self.group), device=self.group.device) - first[self.group]
        keys = next(iter(self.prefixes.values()))[0]
        outside = torch.arange(keys.shape[3], device=keys.device) >= self.lengths[:, None]
        self.padding = keys.new_zeros(outside.shape).masked_fill(outside, -torch.inf)[:, None, None]

    def _to_grid(self, x: torch.Tensor) -> torch.Tensor:
        """[N, kv heads, repeats, d] -> [G, kv heads, width * repeats, d]."""
        groups, (_, kv_heads, repeats, size) = len(self.lengths), x.shape
        grid = x
        if len(x) < groups * self.width:
            grid = x.new_zeros(groups * self.width, kv_heads, repeats, size).index_copy_(0, self.cell, x)
        grid = grid.view(groups, self.width, kv_heads, repeats, size).transpose(1, 2)
        return grid.reshape(groups, kv_heads, self.width * repeats, size)

    def _from_grid(self, grid: torch.Tensor, rows: int) -> torch.Tensor:
        """The inverse of `_to_grid`."""
        groups, kv_heads, _, size = grid.shape
        flat = grid.view(groups, kv_heads, self.width, -1, size).transpose(1, 2).reshape(groups * self.width, kv_heads, -1, size)
        return flat if rows == len(flat) else flat.index_select(0, self.cell)


class _Pad(torch.autograd.Function):
    """``x[order]``, whose backward may gather instead of accumulate because padding never carries a gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, order: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(place)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads[0].index_select(0, ctx.saved_tensors[0]), None, None


class _Unpad(torch.autograd.Function):
    """``y[place]`` with distinct places: its backward writes instead of accumulating."""

    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(place)
        ctx.rows = len(y)
        return y.index_select(0, place)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        grad = grads[0]
        return grad.new_zeros(ctx.rows, *grad.shape[1:]).index_copy_(0, ctx.saved_tensors[0], grad), None


def _sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, scaling: float) -> torch.Tensor:
    """[rows, heads, T, d] attention, causal without a mask; with one, kv heads are repeated, as masked GQA has no fast kernel on CPUs."""
    repeats = q.shape[1] // k.shape[1]
    if repeats > 1 and mask is not None:
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=mask is None, scale=scaling, enable_gqa=repeats > 1 and mask is None
    )


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    attention_plan: PackedAttention | DecodeAttention | None = None,
    **unused: Any,
) -> tuple[torch.Tensor, None]:
    """Entry point for transformers: [1, heads, N, d] queries in, [1, N, heads, d] out."""
    if attention_plan is None:
        raise BaseModelError("this model carries populora's adapters: call it through AdaptedModel, which knows the attention plan")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    return attention_plan.attend(int(module.layer_idx), q, k, v, scale)[None], None  # type: ignore[arg-type]


AttentionInterface.register(NAME, _attention)
