"""Attention of one new token per live response in static shapes, for CUDA graphs: FlexAttention over pages.

The keys and values of a layer are one pool of pages of `PAGE` tokens. A page belongs to one prompt, whose responses all read it in place,
or to one response. Every prompt and response has its own range of addresses, ``number * RANGE + token``, and each page stores the address
at which it begins. So a response sees two intervals of addresses, whatever pages they are on, and freed pages are never visible, because
numbers are not reused. The mask is complete by itself. The table, which lists each response's pages, keeps the work of a step
proportional to the number of tokens.

What the device reads during a replay has a fixed address and shape: mirrors of host arrays, and the pools. Pools that grow are moved.
``generation`` counts that, and graphs of an earlier generation must not be replayed.

Three choices follow from the kernel (torch 2.13, `_inductor/kernel/flex/flex_decoding.py`). The query heads that share keys are passed as
tokens of one query: they see the same keys, and as heads they would need to be a power of two in number (Qwen2.5 has 7), or the kernel
for long queries is used. All pages are listed as partly seen: with a list of fully seen pages the work is split by the length of the pool
instead of the list, and one block would do it all. The batch must be a constant, so there is one compilation for each number of rows.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from populora.engine.model.attention import KeyValues
from populora.engine.planning.decoding_memory import CUDA_PAGE as PAGE  # the kernel's block of keys

QUERY = 128  # the block of queries, and so the kernel's limit on query heads that share keys
RANGE = 1 << 32  # addresses of one prompt or response
UNUSED = -RANGE  # the address of a page that was never used
PADDING = 0  # the page of padding rows, which write and see its first token
COMPILATIONS = 64  # numbers of rows


class Mirror:
    """A ``host`` array and a tensor at a fixed address, ``device``, that gets its values by `send`."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device):
        self._memory = torch.zeros(shape, dtype=dtype, pin_memory=device.type == "cuda")
        self.host, self.device = self._memory.numpy(), torch.zeros(shape, dtype=dtype, device=device)

    def send(self) -> None:
        """Copy host to device. Blocks until done, so that ``host`` may change at once."""
        self.device.copy_(self._memory)


class PagedDecodeAttention:
    """The cache of the rows being decoded, in the order of the packed row: ``live`` of at most ``rows``, followed by padding.

    Prompt and response of a row have at most ``context`` tokens together. Pools double up to ``pages`` and grow by an eighth beyond. Call
    `step` before every forward.
    """

    def __init__(self, device: torch.device, rows: int, context: int, pages: int):
        self.device, self.pages, self.live, self.generation = device, pages, 0, 0
        width = -(-rows // 16) * 16  # the kernel wants its operands aligned
        self._step = Mirror((2, width), torch.int64, device)  # position, and index of the new token in the pool
        self._seen = Mirror((4, width), torch.int64, device)  # addresses: from, to in the prompt, and in the response
        self._count = Mirror((width,), torch.int32, device)  # pages of a row
        self._table = Mirror((width, 2 + -(-context // PAGE)), torch.int32, device)  # its prompt's pages, then its own
        self._address = Mirror((1,), torch.int64, device)  # at which each page begins; at first only the padding's
        self._pools: dict[int, KeyValues] = {}  # per layer K, V [kv heads, pages, PAGE, d]
        self._count.host[:] = 1
        self._free: list[int] = []
        self._numbers = itertools.count(1)
        self._prompts: dict[int, tuple[int, list[int]]] = {}  # by its number, the tokens and the pages of each
        self._row = np.zeros((5, rows), np.int64)  # number; its prompt's number, pages and tokens; its own tokens
        self._moved = True

    def add_prompts(self, kept: dict[int, KeyValues], lengths: Sequence[int]) -> list[int]:
        """Store the keys and values [G, kv heads, P, d] of new prompts. Returns their numbers [G]."""
        numbers = list(itertools.islice(self._numbers, len(lengths)))
        for number, length in zip(numbers, lengths, strict=True):
            self._prompts[number] = length, self._take(-(-length // PAGE), number)
        inside = np.arange(max(lengths)) < np.array(lengths)[:, None]
        source = self._tensor(np.flatnonzero(inside))
        places = [np.add.outer(np.array(self._prompts[number][1]) * PAGE, np.arange(PAGE)).ravel() for number in numbers]
        target = self._tensor(np.concatenate([index[:length] for index, length in zip(places, lengths, strict=True)]))
        for layer, pair in kept.items():
            for pool, new in zip(self._pool(layer, *pair), pair, strict=True):
                pool.flatten(1, 2).index_copy_(1, target, new.transpose(0, 1).flatten(1, 2).index_select(1, source))
        return numbers

    def drop_prompts(self, numbers: Sequence[int]) -> None:
        """Free the pages of prompts that no row needs any more."""
        for number in numbers:
            self._free += self._prompts.pop(number)[1]

    def add_rows(self, prompts: Sequence[int]) -> None:
        """Append rows without tokens of their own, by the numbers of their prompts."""
        for row, prompt in enumerate(prompts, self.live):
            tokens, pages = self._prompts[prompt]
            self._row[:, row] = next(self._numbers), prompt, len(pages), tokens, 0
            self._count.host[row] = len(pages)
            self._table.host[row, : len(pages)] = pages
        self.live += len(prompts)
        self._moved = True

    def keep_rows(self, rows: np.ndarray) -> None:
        """Keep only ``rows``, in that order, and free the pages of the others."""
        for row in np.setdiff1d(np.arange(self.live), rows).tolist():
            self._free += self._table.host[row, self._row[2, row] : self._count.host[row]].tolist()
        count = len(rows)
        self._row[:, :count] = self._row[:, rows]
        self._count.host[:count], self._table.host[:count] = self._count.host[rows], self._table.host[rows]
        self._count.host[count:], self._table.host[count:] = 1, PADDING
        self.live, self._moved = count, True

    def step(self, size: int) -> torch.Tensor:
        """Make room for one more token of each row. Returns the new tokens' positions [size], followed by those of padding."""
        live = self.live
        number, prompt, _, prompt_tokens, own_tokens = self._row[:, :live]
        for row in np.flatnonzero(own_tokens % PAGE == 0).tolist():
            (page,) = self._take(1, int(number[row]), int(own_tokens[row]))
            self._table.host[row, self._count.host[row]] = page
            self._count.host[row] += 1
        last = self._table.host[np.arange(live), self._count.host[:live] - 1].astype(np.int64)
        self._step.host[:, :live] = prompt_tokens + own_tokens, last * PAGE + own_tokens % PAGE
        own_tokens += 1
        self._seen.host[:, :live] = prompt * RANGE, prompt * RANGE + prompt_tokens, number * RANGE, number * RANGE + own_tokens
        self._step.host[:, live:size] = PADDING
        self._seen.host[:, live:size] = [[0], [0], [0], [1]]
        for mirror in (self._step, self._seen, *((self._count, self._table, self._address) if self._moved else ())):
            mirror.send()
        self._moved = False
        return self._step.device[0, :size]

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scaling: float) -> torch.Tensor:
        """Map q [size, heads, d], k and v [size, kv heads, d] to [size, heads, d]."""
        size, kv_heads, _ = k.shape
        target = self._step.device[1, :size]
        keys, values = self._pools[layer]
        for pool, new in ((keys, k), (values, v)):
            pool.flatten(1, 2).index_copy_(1, target, new.transpose(0, 1))
        attend: Callable[..., torch.Tensor] = kernel() if q.device.type == "cuda" else attend_in_pages
        queries, seen = q.unflatten(1, (kv_heads, -1)), self._seen.device[:, :size]
        count, table = self._count.device[:size, None, None], self._table.device[:size, None, None]
        return attend(queries, keys, values, self._address.device, *seen, count, table, scaling).flatten(1, 2)

    def _take(self, count: int, number: int, token: int = 0) -> list[int]:
        """Take ``count`` free pages for the tokens of ``number`` from ``token`` on."""
        if len(self._free) < count:
            self._grow(len(self._address.host) + count - len(self._free))
        pages = [self._free.pop() for _ in range(count)]
        self._address.host[pages] = number * RANGE + token + np.arange(count) * PAGE
        self._moved = True
        return pages

    def _grow(self, wanted: int) -> None:
        """Grow the pools to at least ``wanted`` pages. Only one pool at a time is held twice."""
        previous, length = self._address, len(self._address.host)
        capacity = max(wanted, min(2 * length, self.pages), length + length // 8)
        self._free += range(capacity - 1, length - 1, -1)
        self._address = Mirror((capacity,), torch.int64, self.device)
        self._address.host[:length], self._address.host[length:] = previous.host, UNUSED
        torch._dynamo.maybe_mark_dynamic(self._address.device, 0)
        for layer, (keys, values) in self._pools.items():
            self._pools[layer] = (self._wider(keys), values)
            self._pools[layer] = (self._pools[layer][0], self._wider(values))
        self.generation += 1

    def _pool(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> KeyValues:
        if layer not in self._pools:
            first = (x.new_zeros(x.shape[1], 0, PAGE, x.shape[3]) for x in (keys, values))
            self._pools[layer] = tuple(self._wider(pool) for pool in first)  # type: ignore[assignment]
        return self._pools[layer]

    def _wider(self, pool: torch.Tensor) -> torch.Tensor:
        """Copy a pool to the current number of pages. Unwritten tokens are zero, so that the mask's zero weights give zero."""
        wider = pool.new_zeros(pool.shape[0], len(self._address.host), *pool.shape[2:])
        wider[:, : pool.shape[1]] = pool
        torch._dynamo.maybe_mark_dynamic(wider, 1)
        return wider

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values).to(self.device)


def attend_in_pages(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, address: torch.Tensor,
    first: torch.Tensor, end: torch.Tensor, start: torch.Tensor, until: torch.Tensor,
    count: torch.Tensor, table: torch.Tensor, scaling: float,
) -> torch.Tensor:  # fmt: skip
    """Map q [rows, kv heads, repeats, d] and pools [kv heads, pages, PAGE, d] to [rows, kv heads, repeats, d].

    A row sees the addresses first <= place < end and start <= place < until, each [rows], on pages that begin at ``address`` [pages].
    These pages are among the first ``count`` [rows, 1, 1] of ``table`` [rows, 1, 1, width].
    """
    keys, values = keys.flatten(1, 2)[None], values.flatten(1, 2)[None]

    def sees(row: torch.Tensor, head: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        place = address[j // PAGE] + j % PAGE
        return ((place >= first[row]) & (place < end[row])) | ((place >= start[row]) & (place < until[row]))

    size = q.shape[2], keys.shape[2]
    mask = BlockMask(size, count, table, None, None, None, None, None, None, BLOCK_SIZE=(QUERY, PAGE), mask_mod=sees)
    return flex_attention(q, keys, values, block_mask=mask, scale=scaling)


@cache
def kernel() -> Callable[..., torch.Tensor]:
    """Return `attend_in_pages` compiled, once for each number of rows and, if the compiler can, for all numbers of pages.

    `populora.engine.model.flex.kernel`, which computes the prompts before, refuses heads that are too small.
    """
    return torch.compile(attend_in_pages, fullgraph=True, dynamic=False, recompile_limit=COMPILATIONS)  # type: ignore[call-overload]
