"""Attention of one new token per live response, over a cache that rows enter and leave at any time.

A response's keys and values are stored in pages of `PAGE` tokens from one pool. A finished row frees its pages without a copy, and the
work of a step grows with the number of tokens, not with the longest row. A prompt's keys and values are stored once for all its
responses. Both parts are joined as in flash decoding (Dao et al. 2023): each part yields its maximum, its sum of exponentials and its
mixed values, which weight a row's parts.
"""

import heapq
import itertools
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F

from populora.engine.model.attention import KeyValues

PAGE = 16  # tokens
SPARSE = 0.5  # share of places in use below which the cache is compacted


class DecodeAttention:
    """The cache of the rows being decoded, in the order of the packed row.

    ``prompt`` [n] is the place of each row's prompt, ``length`` [n] the number of its own tokens. Call `step` before every forward.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.prompt, self.length = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._table = np.zeros((0, 1), np.int64)  # pages of each row [n, most pages of a row]
        self._pages: dict[int, KeyValues] = {}  # per layer K, V [pages, kv heads, PAGE, d]
        self._free: list[int] = []  # a heap: low pages first, so that used pages stay adjacent
        self._capacity = 0
        self._prompts: dict[int, KeyValues] = {}  # per layer K [places, kv heads, d, P], V [places, kv heads, P, d]
        self._lengths = np.zeros(0, np.int64)  # of the prompts; 0 for a free place
        self._place: dict[int, int] = {}  # of each prompt, by its number
        self._numbers = itertools.count()

    def add_prompts(self, kept: dict[int, KeyValues], lengths: Sequence[int]) -> list[int]:
        """Store the keys and values [G, kv heads, P, d] of new prompts. Returns their numbers [G]."""
        places = np.flatnonzero(self._lengths == 0)[: len(lengths)]
        missing, stored = len(lengths) - len(places), len(self._lengths)
        if missing:
            places = np.concatenate((places, np.arange(missing) + stored))
            self._lengths = np.pad(self._lengths, (0, missing))
        self._lengths[places] = lengths
        for layer, (keys, values) in kept.items():
            self._write_prompts(layer, places, keys.mT, values)
        numbers = list(itertools.islice(self._numbers, len(lengths)))
        self._place |= zip(numbers, places.tolist(), strict=True)
        return numbers

    def drop_prompts(self, numbers: Sequence[int]) -> None:
        """Free the places of prompts that no row needs any more, and compact the cache if few are left."""
        self._lengths[[self._place.pop(number) for number in numbers]] = 0
        left = np.flatnonzero(self._lengths)
        if len(left) < SPARSE * len(self._lengths):
            longest, indices = int(self._lengths.max(initial=0)), self._tensor(left)
            self._prompts = {
                layer: (keys[indices, :, :, :longest].contiguous(), values[indices, :, :longest].contiguous())
                for layer, (keys, values) in self._prompts.items()
            }
            moved = np.cumsum(self._lengths > 0) - 1
            self._place = {number: int(moved[place]) for number, place in self._place.items()}
            self._lengths, self.prompt = self._lengths[left], moved[self.prompt]

    def add_rows(self, prompts: Sequence[int]) -> None:
        """Append rows without tokens of their own, by the numbers of their prompts."""
        self.prompt = np.concatenate((self.prompt, np.array([self._place[number] for number in prompts], np.int64)))
        self.length = np.pad(self.length, (0, len(prompts)))
        self._table = np.pad(self._table, ((0, len(prompts)), (0, 0)))

    def keep_rows(self, rows: np.ndarray) -> None:
        """Keep only ``rows``, in that order, free the pages of the others, and compact the cache if few are left."""
        used = np.arange(self._table.shape[1]) * PAGE < self.length[:, None]
        gone = np.ones(len(self.prompt), dtype=bool)
        gone[rows] = False
        for page in self._table[used & gone[:, None]].tolist():
            heapq.heappush(self._free, page)
        self.prompt, self.length, self._table, used = self.prompt[rows], self.length[rows], self._table[rows], used[rows]
        pages = self._table[used]
        if len(pages) and len(pages) < SPARSE * (pages.max() + 1):
            source, count = self._tensor(pages), len(pages)
            for pools in self._pages.values():
                for pool in pools:
                    pool[:count] = pool[source]
            self._table[used] = np.arange(count)
            self._free = list(range(count, self._capacity))

    def step(self) -> torch.Tensor:
        """Make room for one more token of each row. Returns the new tokens' positions [n]."""
        block, column = self.length // PAGE, self.length % PAGE
        self._take_pages(np.flatnonzero(column == 0), block)
        positions = self._lengths[self.prompt] + self.length
        rows = np.arange(len(self.length))
        self._write = self._tensor(self._table[rows, block]), self._tensor(column)
        self.length = self.length + 1
        self._index_pages(block)
        self._index_prompts()
        return self._tensor(positions)

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scaling: float) -> torch.Tensor:
        """Map q [n, heads, d], k and v [n, kv heads, d] to [n, heads, d]."""
        rows, heads, size = q.shape
        pages_k, pages_v = self._page_pool(layer, k)
        pages_k[self._write[0], :, self._write[1]], pages_v[self._write[0], :, self._write[1]] = k, v
        queries = q.view(rows, k.shape[1], heads // k.shape[1], size) * scaling
        used = len(self._owner)
        responses = _part(queries.index_select(0, self._owner), pages_k[:used].mT, pages_v[:used], self._unwritten)
        prompts = self._from_grid(_part(self._to_grid(queries), *self._prompts[layer], self._outside))
        parts = torch.cat((responses, prompts)).index_select(0, self._parts).unflatten(0, (rows, -1))
        mixed, peak, total = parts.split((size, 1, 1), 4)
        weights = (peak - peak.amax(1, keepdim=True)).exp_().mul_(total).mul_(self._counts)
        return (weights * mixed).sum(1).div_(weights.sum(1)).view(rows, heads, size).to(q.dtype)

    def _take_pages(self, rows: np.ndarray, block: np.ndarray) -> None:
        if len(rows) and int(block[rows].max()) >= self._table.shape[1]:
            self._table = np.pad(self._table, ((0, 0), (0, self._table.shape[1])))
        if len(self._free) < len(rows):
            added = max(len(rows), self._capacity // 8)  # more could exceed engine.cache_mb by as much
            self._free += range(self._capacity, self._capacity + added)
            self._capacity += added
        for row in rows.tolist():
            self._table[row, block[row]] = heapq.heappop(self._free)

    def _write_prompts(self, layer: int, places: np.ndarray, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Write K [G, kv heads, d, P] and V [G, kv heads, P, d] into the layer's pool, which grows if needed."""
        pool_k, pool_v = self._prompts.get(layer, (keys[:0], values[:0]))
        end, indices = values.shape[2], self._tensor(places)
        places_added, tokens_added = len(self._lengths) - len(pool_v), max(0, end - pool_v.shape[2])
        if places_added or tokens_added:
            pool_k, pool_v = (
                F.pad(pool_k, (0, tokens_added, 0, 0, 0, 0, 0, places_added)),
                F.pad(pool_v, (0, 0, 0, tokens_added, 0, 0, 0, places_added)),
            )
        pool_k[indices, :, :, :end], pool_v[indices, :, :end] = keys, values
        self._prompts[layer] = (pool_k, pool_v)

    def _page_pool(self, layer: int, new_keys: torch.Tensor) -> KeyValues:
        """Return the layer's pages, grown to the capacity of the pool."""
        if layer not in self._pages:
            empty = new_keys.new_zeros(0, new_keys.shape[1], PAGE, new_keys.shape[2])
            self._pages[layer] = (empty, empty)
        missing = self._capacity - len(self._pages[layer][0])
        if missing:
            keys, values = self._pages[layer]
            self._pages[layer] = (F.pad(keys, (0, 0, 0, 0, 0, 0, 0, missing)), F.pad(values, (0, 0, 0, 0, 0, 0, 0, missing)))
        return self._pages[layer]

    def _index_pages(self, block: np.ndarray) -> None:
        """Index pages and rows.

        Each page up to the last in use gets its row (0 if unused, which does not read it) and the mask of its unwritten tokens. Each row
        gets its parts: its prompt, then its pages, then padding that does not count.
        """
        rows = len(block)
        row, column = np.nonzero(np.arange(self._table.shape[1]) <= block[:, None])
        pages = self._table[row, column]
        used = int(pages.max()) + 1
        owner, filled = np.zeros(used, np.int64), np.full(used, PAGE)
        owner[pages], filled[pages] = row, np.minimum(self.length[row] - column * PAGE, PAGE)
        parts = np.repeat(used + np.arange(rows)[:, None], int(block.max()) + 2, 1)
        parts[row, column + 1] = pages
        counts = np.arange(parts.shape[1]) <= block[:, None] + 1
        self._owner, self._parts = self._tensor(owner), self._tensor(parts.ravel())
        self._counts = self._tensor(counts.astype(np.float32))[:, :, None, None, None]
        self._unwritten = _minus_infinity(np.arange(PAGE) >= filled[:, None]).to(self.device)

    def _index_prompts(self) -> None:
        """Index the grid [prompts, width] of a prompt's rows, so that one product computes them all."""
        order = np.argsort(self.prompt, kind="stable")
        counts = np.bincount(self.prompt, minlength=len(self._lengths))
        first = np.cumsum(counts) - counts
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order)) - first[self.prompt[order]]
        self._width = int(counts.max())
        self._cell = self._tensor(self.prompt * self._width + place)
        longest = next(iter(self._prompts.values()))[1].shape[2]
        self._outside = _minus_infinity(np.arange(longest) >= np.maximum(self._lengths, 1)[:, None]).to(self.device)

    def _to_grid(self, x: torch.Tensor) -> torch.Tensor:
        """Map [n, kv heads, repeats, d] to [prompts, kv heads, width * repeats, d]."""
        prompts, (_, kv_heads, repeats, size) = len(self._lengths), x.shape
        grid = x.new_zeros(prompts * self._width, kv_heads, repeats, size).index_copy_(0, self._cell, x)
        return grid.view(prompts, self._width, kv_heads, repeats, size).transpose(1, 2).reshape(prompts, kv_heads, -1, size)

    def _from_grid(self, grid: torch.Tensor) -> torch.Tensor:
        """Invert `_to_grid`."""
        prompts, kv_heads, _, size = grid.shape
        flat = grid.view(prompts, kv_heads, self._width, -1, size).transpose(1, 2).reshape(prompts * self._width, kv_heads, -1, size)
        return flat.index_select(0, self._cell)

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values).to(self.device)


def _part(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Attend to one part of the keys: q [n, kv heads, repeats, d], k [n, kv heads, d, T], v [n, kv heads, T, d], mask [n, 1, 1, T].

    Returns [n, kv heads, repeats, d + 2]: mixed values, largest score, and the sum of the exponentials of all scores minus it.
    """
    scores = torch.matmul(q, k).float().add_(mask)
    shares = scores.softmax(3)
    peak, largest_share = scores.amax(3, keepdim=True), shares.amax(3, keepdim=True)
    return torch.cat(((shares.to(v.dtype) @ v).float(), peak, largest_share.reciprocal_()), 3)


def _minus_infinity(outside: np.ndarray) -> torch.Tensor:
    """Build a mask [n, 1, 1, T] that is minus infinity where ``outside`` [n, T]."""
    return torch.from_numpy(np.where(outside, -np.inf, 0.0).astype(np.float32))[:, None, None]
