"""Assign the tokens of a forward to adapters, and multiply segments of tokens with their adapters' factors.

The tokens of a forward are one packed row, sorted by slot, with those of the bare base (slot -1) first. A stacked weight [S, k, n] meets
the row in two ways: each segment times its slot's matrix (`product`), and the sum over a segment's tokens of outer products (`outer`, a
gradient). Each has three backends with equal results: a loop over the segments, ``bmm`` for equal segments, and ``grouped_mm``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import torch
import torch.nn.functional as F

ALIGNMENT = 16  # bytes: grouped_mm requires it of its operands and their strides


@dataclass(frozen=True)
class SegmentMap:
    """The segments of the packed row: ``bare`` tokens without adapter, then ``counts[i]`` tokens of slot ``first + i``.

    ``ends`` (int32) are the ends of the segments, counted from the first adapted token. ``equal`` says that all are equally long.
    """

    bare: int
    first: int
    counts: tuple[int, ...]
    ends: torch.Tensor
    equal: bool

    @classmethod
    def build(cls, slots: Sequence[int], lengths: Sequence[int], device: str | torch.device = "cpu") -> Self:
        """Build the map of segments with these slots (ascending) and lengths in tokens. Raises ``ValueError`` if they are not sorted."""
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
        return cls(bare, first, tuple(counts), ends, len(set(counts)) == 1)

    @property
    def tokens(self) -> int:
        """Length of the packed row."""
        return self.bare + sum(self.counts)

    def adapted(self, x: torch.Tensor) -> torch.Tensor:
        """Return the rows of x [N, ..] whose tokens have an adapter."""
        return x[self.bare :] if self.bare else x

    @property
    def slots(self) -> slice:
        """The slots from the first to the last that has tokens."""
        return slice(self.first, self.first + len(self.counts))


@dataclass(frozen=True)
class SlotWeights:
    """The weight of each slot's adapter for each token, without segments, so that shapes are static as CUDA graphs require.

    ``weights`` [N, S], in float32 as the learner's scale is, are alpha / rank at the slot of the token, else 0; those of a token of the
    bare base are all 0.
    """

    weights: torch.Tensor

    @property
    def tokens(self) -> int:
        """Length of the packed row."""
        return len(self.weights)


def product(
    x: torch.Tensor, w: torch.Tensor, segments: SegmentMap, into: torch.Tensor | None = None, alpha: float = 1.0, backend: str = "auto"
) -> torch.Tensor:
    """Multiply each segment of x [N, k] with its matrix of w [segments, k, n]. Returns [N, n].

    With ``into``, add ``alpha`` times the product to it in place and return it.
    """
    return BACKENDS[_choose(x, w, segments, into) if backend == "auto" else backend][0](x, w, segments, into, alpha)


def outer(x: torch.Tensor, y: torch.Tensor, segments: SegmentMap, into: torch.Tensor, backend: str = "auto") -> None:
    """Add x_s^T @ y_s of each segment to ``into`` [segments, k, n], for x [N, k] and y [N, n]."""
    BACKENDS[_choose(x, y, segments, into) if backend == "auto" else backend][1](x, y, segments, into)


def _choose(x: torch.Tensor, w: torch.Tensor, segments: SegmentMap, into: torch.Tensor | None) -> str:
    """Choose the fastest backend: bmm for equal segments, else grouped_mm if its operands are aligned.

    On the CPU grouped_mm walks over the segments one by one too, so the loop is faster when it can add in place.
    """
    if segments.equal:
        return "bmm"
    if (into is not None or w.dim() == 2) and x.device.type == "cpu":
        return "loop"
    return "grouped" if all(offset % ALIGNMENT == 0 for tensor in (x, w) for offset in _offsets(tensor)) else "loop"


def _offsets(tensor: torch.Tensor) -> list[int]:
    """Return the address of a tensor and its strides, in bytes."""
    return [tensor.data_ptr(), *(size * tensor.element_size() for size in tensor.stride() if size != 1)]


def _loop_product(x: torch.Tensor, w: torch.Tensor, segments: SegmentMap, into: torch.Tensor | None, alpha: float) -> torch.Tensor:
    if into is None:
        return torch.cat([part @ matrix for part, matrix in zip(x.split(segments.counts), w, strict=True)])
    for part, matrix, out in zip(x.split(segments.counts), w, into.split(segments.counts), strict=True):
        out.addmm_(part, matrix, alpha=alpha)
    return into


def _loop_outer(x: torch.Tensor, y: torch.Tensor, segments: SegmentMap, into: torch.Tensor) -> None:
    for left, right, out in zip(x.split(segments.counts), y.split(segments.counts), into, strict=True):
        out.add_(left.T @ right)


def _bmm_product(x: torch.Tensor, w: torch.Tensor, segments: SegmentMap, into: torch.Tensor | None, alpha: float) -> torch.Tensor:
    parts = x.view(len(w), -1, x.shape[1])
    if into is None:
        return torch.bmm(parts, w).view(len(x), -1)
    into.view(len(w), -1, into.shape[1]).baddbmm_(parts, w, alpha=alpha)
    return into


def _bmm_outer(x: torch.Tensor, y: torch.Tensor, segments: SegmentMap, into: torch.Tensor) -> None:
    into += torch.bmm(x.view(len(into), -1, x.shape[1]).mT, y.view(len(into), -1, y.shape[1]))


def _grouped_product(x: torch.Tensor, w: torch.Tensor, segments: SegmentMap, into: torch.Tensor | None, alpha: float) -> torch.Tensor:
    result = F.grouped_mm(x, w, offs=segments.ends)
    return result if into is None else into.add_(result, alpha=alpha)


def _grouped_outer(x: torch.Tensor, y: torch.Tensor, segments: SegmentMap, into: torch.Tensor) -> None:
    into += F.grouped_mm(x.T, y, offs=segments.ends)


BACKENDS = {"loop": (_loop_product, _loop_outer), "bmm": (_bmm_product, _bmm_outer), "grouped": (_grouped_product, _grouped_outer)}
