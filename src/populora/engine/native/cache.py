"""Keys and values of the rows that `decode.c` decodes. A prompt has memory of its own, which its rows share. A row has a place for as many
tokens as a response may have, in slabs that are reused."""

import itertools
from collections.abc import Sequence

import numpy as np

from populora.engine.native.packed_model import PackedModel, floats
from populora.engine.planning.decoding_memory import in_whole_pages

SLAB = 64  # rows whose places are allocated together, in large pages where the system has them


class NativeCache:
    """Places for at most ``rows`` rows of ``max_tokens`` tokens each, and their prompts."""

    def __init__(self, model: PackedModel, rows: int, max_tokens: int):
        self._panel = model.functions.panel()  # keys lie in panels of so many tokens
        self.capacity, self._slab = in_whole_pages(max_tokens, self._panel), min(rows, SLAB)
        self._token = 2 * model.layers * model.kv_heads * model.size  # numbers
        self._free: list[np.ndarray] = []
        self._numbers = itertools.count()
        self._prompts: dict[int, tuple[np.ndarray, int, int]] = {}  # memory, length and capacity, by number
        self._places: list[np.ndarray] = []
        self.rows = np.zeros((6, 0), np.int64)
        """Of each row: its prompt's address, length and capacity, and its own address, length and capacity."""

    def add_prompts(self, lengths: Sequence[int]) -> tuple[list[int], np.ndarray]:
        """Make room for new prompts. Returns their numbers [G], and the columns of `rows` for all their tokens [6, N]."""
        numbers = list(itertools.islice(self._numbers, len(lengths)))
        columns: list[np.ndarray] = []
        for number, length in zip(numbers, lengths, strict=True):
            capacity = in_whole_pages(length, self._panel)
            memory = floats(self._token * capacity)
            self._prompts[number] = memory, length, capacity
            token = np.zeros((6, length), np.int64)
            token[0], token[3], token[4], token[5] = memory.ctypes.data, memory.ctypes.data, np.arange(length), capacity
            columns.append(token)
        return numbers, np.concatenate(columns, 1)

    def drop_prompts(self, numbers: Sequence[int]) -> None:
        """Free prompts that no row needs any more."""
        for number in numbers:
            del self._prompts[number]

    def add_rows(self, prompts: Sequence[int]) -> None:
        """Append rows without tokens of their own, by the numbers of their prompts."""
        rows: list[tuple[int, ...]] = []
        for number in prompts:
            if not self._free:
                self._free.extend(floats(self._slab * self._token * self.capacity).reshape(self._slab, -1))
            self._places.append(self._free.pop())
            memory, *sizes = self._prompts[number]
            rows.append((memory.ctypes.data, *sizes, self._places[-1].ctypes.data, 0, self.capacity))
        self.rows = np.concatenate((self.rows.T, np.array(rows, np.int64).reshape(-1, 6))).T.copy()

    def keep_rows(self, rows: np.ndarray) -> None:
        """Keep only ``rows``, in that order, and free the places of the others."""
        staying = rows.tolist()
        self._free += [self._places[row] for row in sorted(set(range(len(self._places))).difference(staying))]
        self._places = [self._places[row] for row in staying]
        self.rows = self.rows[:, rows].copy()
