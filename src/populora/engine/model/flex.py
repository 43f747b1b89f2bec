"""Packed attention on CUDA: one FlexAttention kernel (Dong et al. 2024) over the whole packed row.

Nothing is padded to rectangles and no keys are copied. The kernel walks over blocks of `BLOCK` x `BLOCK` tokens, skips blocks without any
visible pair, and evaluates the mask only in blocks with some. These blocks are computed from the segments in tokens x blocks steps.
`create_block_mask` would evaluate tokens x tokens; compiled it would not store them, but compile again for new lengths.

One compilation serves all lengths (torch 2.13). The `BlockMask` is built inside the compiled function, so that its length is that of the
queries by construction; passed in, each length would be a constant to compile for (pytorch/pytorch#189952). The row has whole blocks,
which avoids bounds checks, and at least two, because a dimension of one is a constant as well and rows under `BLOCK` tokens go to another
kernel (pytorch/pytorch#185349). With ``fullgraph`` torch raises when it compiles too often; otherwise it would fall back to the
uncompiled function, which stores all scores.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from populora.core.errors import BaseModelError
from populora.engine.model.attention import KeyValues

BLOCK = 128
SMALLEST_HEAD = 16  # of the compiled kernel; sizes that are not powers of two are padded by torch itself


@dataclass(frozen=True)
class FlexPackedAttention:
    """Causal attention in the packed row: each prompt to itself, each response to its prompt and itself.

    ``start``, ``prompt_start`` and ``prompt_end`` are [N'] (int32), where N' is a whole number of blocks. Token i sees the tokens from
    start[i], the start of its prompt or response, to itself. A token of a response also sees its prompt, from prompt_start[i] up to
    prompt_end[i]. Padding sees itself.
    ``blocks`` are the four pairs (count, list) of `BlockMask`: for each block of queries the blocks of keys of which it sees some
    tokens, and those of which it sees all; then the same for each block of keys. ``prompts`` [G, P] indexes the prompts to keep, if any:
    ``kept`` receives their (K, V) [G, kv heads, P, d] of each layer, where padding repeats a prompt's last token.
    """

    start: torch.Tensor
    prompt_start: torch.Tensor
    prompt_end: torch.Tensor
    blocks: tuple[torch.Tensor, ...]
    prompts: torch.Tensor | None
    kept: dict[int, KeyValues] = field(default_factory=dict)

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scaling: float) -> torch.Tensor:
        """Map q [N, heads, d], k and v [N, kv heads, d] to [N, heads, d]. Raises `BaseModelError` for heads too small for the kernel."""
        if self.prompts is not None:
            self.kept[layer] = (k[self.prompts].transpose(1, 2), v[self.prompts].transpose(1, 2))
        queries, keys, values = (_in_blocks(x, len(self.start)) for x in (q, k, v))
        attend = kernel(q.shape[2]) if q.device.type == "cuda" else attend_in_blocks
        return attend(queries, keys, values, self.start, self.prompt_start, self.prompt_end, self.blocks, scaling)[: len(q)]


def flex_plan(lengths: Sequence[Sequence[int]], device: str | torch.device, keep: bool = False) -> FlexPackedAttention:
    """Plan the attention of consecutive groups, each given as the lengths of its prompt and of each of its responses."""
    sizes, start, prompt_start, prompt_end, group_starts = [], [], [], [], []
    position = 0
    for prompt, *responses in lengths:
        group_starts.append(position)
        for size, visible in ((prompt, 0), *((response, prompt) for response in responses)):
            sizes.append(size)
            start.append(position)
            prompt_start.append(group_starts[-1])
            prompt_end.append(group_starts[-1] + visible)
            position += size
    padding = np.arange(position, max(2, -(-position // BLOCK)) * BLOCK)

    def of_tokens(column: Sequence[int], tail: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.concatenate((np.repeat(column, sizes), tail)).astype(np.int32)).to(device)

    seen = of_tokens(start, padding), of_tokens(prompt_start, 0 * padding), of_tokens(prompt_end, 0 * padding)
    prompts = np.array([prompt for prompt, *_ in lengths])
    index = np.array(group_starts)[:, None] + np.minimum(np.arange(prompts.max()), prompts[:, None] - 1)
    return FlexPackedAttention(*seen, _blocks(*seen), torch.from_numpy(index).to(device) if keep else None)


def attend_in_blocks(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, start: torch.Tensor, prompt_start: torch.Tensor, prompt_end: torch.Tensor,
    blocks: tuple[torch.Tensor, ...], scaling: float,
) -> torch.Tensor:  # fmt: skip
    """Map q [blocks, BLOCK, heads, d], k and v [blocks, BLOCK, kv heads, d] to [N', heads, d]."""
    queries, keys, values = (x.flatten(0, 1).transpose(0, 1)[None] for x in (q, k, v))
    tokens = queries.shape[2]

    def sees(batch: torch.Tensor, head: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return ((j >= start[i]) & (j <= i)) | ((j >= prompt_start[i]) & (j < prompt_end[i]))

    mask = BlockMask((tokens, tokens), *blocks, BLOCK_SIZE=(BLOCK, BLOCK), mask_mod=sees)
    return flex_attention(queries, keys, values, block_mask=mask, scale=scaling, enable_gqa=True)[0].transpose(0, 1)


def kernel(size: int) -> Callable[..., torch.Tensor]:
    """Return `attend_in_blocks` compiled, for heads of ``size`` dimensions. Raises `BaseModelError` if they are too small."""
    if size < SMALLEST_HEAD:
        raise BaseModelError(
            f"expected a base whose attention heads have at least {SMALLEST_HEAD} dimensions, which the kernel for CUDA needs; this one's "
            f'have {size}. Choose another base.path, or base.device = "cpu".'
        )
    return _compile()


@cache
def _compile() -> Callable[..., torch.Tensor]:
    return torch.compile(attend_in_blocks, fullgraph=True)


def _in_blocks(x: torch.Tensor, tokens: int) -> torch.Tensor:
    """Pad x [N, heads, d] to blocks [blocks, BLOCK, heads, d]."""
    padded = F.pad(x, (0, 0, 0, 0, 0, tokens - len(x))) if tokens > len(x) else x
    return padded.unflatten(0, (-1, BLOCK))


def _blocks(start: torch.Tensor, prompt_start: torch.Tensor, prompt_end: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Compute ``blocks`` of `FlexPackedAttention` by counting the visible pairs of each block."""
    tokens = torch.arange(len(start), dtype=torch.int32, device=start.device)
    left = tokens[::BLOCK]

    def overlap(first: torch.Tensor, stop: torch.Tensor) -> torch.Tensor:
        """Count the tokens of first <= j < stop in each block of keys, [N', blocks]."""
        return (stop[:, None].minimum(left + BLOCK) - first[:, None].maximum(left)).clamp_(min=0)

    pairs = (overlap(start, tokens + 1) + overlap(prompt_start, prompt_end)).unflatten(0, (-1, BLOCK)).sum(1)
    full = pairs == BLOCK**2
    partial = (pairs > 0) & ~full
    return (*_listed(partial), *_listed(full), *_listed(partial.T), *_listed(full.T))


def _listed(seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the number of true entries in each row of ``seen`` [1, 1, rows], and their columns first in [1, 1, rows, columns]."""
    order = seen.int().argsort(dim=1, descending=True, stable=True)
    return seen.sum(1, dtype=torch.int32)[None, None], order.to(torch.int32, memory_format=torch.contiguous_format)[None, None]
