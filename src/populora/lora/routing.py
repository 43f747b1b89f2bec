"""Which tokens go through which adapter, and the low-rank product itself.

Tokens of a forward lie in one packed row, sorted by slot, those of the bare base (slot -1) first. `lora_delta` has three
backends with equal results: ``loop`` (the oracle), ``bmm`` (equal segments) and ``grouped`` (any segments).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F

ALIGNMENT = 16  # bytes; what grouped_mm asks of the strides of its operands


@dataclass(frozen=True)
class Route:
    """The packed row's segments: ``bare`` tokens without adapter, then ``counts[i]`` tokens of slot ``first + i``.

    ``ends`` (int32) are the segments' ends, counted from the first adapted token.
    """

    bare: int
    first: int
    counts: tuple[int, ...]
    ends: torch.Tensor

    @classmethod
    def of(cls, slots: Sequence[int], lengths: Sequence[int], device: str | torch.device = "cpu") -> Route:
        """Route of segments with the given slots (ascending) and lengths in tokens. Raises ``ValueError`` if not sorted."""
        if any(left > right for left, right in pairwise(slots)):
            raise ValueError(f"segments must be sorted by slot, got {list(slots)}")
        bare = sum(length for slot, length in zip(slots, lengths, strict=True) if slot < 0)
        used = [slot for slot in slots if slot >= 0]
        first = used[0] if used else 0
        counts = [0] * (used[-1] - first + 1 if used else 0)
        for slot, length in zip(slots, lengths, strict=True):
            if slot >= 0:
                counts[slot - first] += length
        ends = torch.tensor(counts, dtype=torch.int32).cumsum(0, dtype=torch.int32).to(device)
        return cls(bare, first, tuple(counts), ends)

    @property
    def tokens(self) -> int:
        """Length of the packed row."""
        return self.bare + sum(self.counts)


def lora_delta(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, route: Route, backend: str = "auto") -> torch.Tensor:
    """B_s A_s x for the adapted tokens: x [N, in], a [S, r, in], b [S, out, r] -> [N, out], without the scale."""
    span = slice(route.first, route.first + len(route.counts))
    a, b = a[span].to(x.dtype), b[span].to(x.dtype)
    chosen = _choose(a, b, route) if backend == "auto" else backend
    return BACKENDS[chosen](x, a, b, route)


def _choose(a: torch.Tensor, b: torch.Tensor, route: Route) -> str:
    """bmm wins where segments are equal; grouped_mm is the robust one, but wants aligned operands."""
    if len(set(route.counts)) == 1:
        return "bmm"
    sizes = (*a.stride()[:2], *b.stride()[:2])
    return "grouped" if all(size * a.element_size() % ALIGNMENT == 0 for size in sizes) else "loop"


def _loop(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, route: Route) -> torch.Tensor:
    parts = [part @ a[i].T @ b[i].T for i, part in enumerate(x.split(list(route.counts)))]
    return torch.cat(parts)


def _bmm(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, route: Route) -> torch.Tensor:
    segments = x.view(len(route.counts), -1, x.shape[-1])
    return torch.bmm(torch.bmm(segments, a.mT), b.mT).view(len(x), -1)


def _grouped(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, route: Route) -> torch.Tensor:
    return F.grouped_mm(F.grouped_mm(x, a.mT, offs=route.ends), b.mT, offs=route.ends)


BACKENDS = {"loop": _loop, "bmm": _bmm, "grouped": _grouped}
