"""Which tokens go through which adapter, and the products of their segments with the adapters' factors.

Tokens of a forward lie in one packed row, sorted by slot, those of the bare base (slot -1) first. A stacked weight [S, k, n] meets
such a row in two ways: each segment times its slot's matrix (`product`), and the sum over a segment's tokens of outer products
(`outer`, a gradient). Both have three backends with equal results: ``loop`` (the oracle), ``bmm`` (equal segments) and ``grouped``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F

ALIGNMENT = 16  # bytes; what grouped_mm asks of its operands and their strides


@dataclass(frozen=True)
class Route:
    """The packed row's segments: ``bare`` tokens without adapter, then ``counts[i]`` tokens of slot ``first + i``.

    ``ends`` (int32) are the segments' ends, counted from the first adapted token.
    """

    bare: int
    first: int
    counts: tuple[int, ...]
    ends: torch.Tensor
    even: bool
    """Whether all segments are equally long."""

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
        return cls(bare, first, tuple(counts), ends, len(set(counts)) == 1)

    @property
    def tokens(self) -> int:
        """Length of the packed row."""
        return self.bare + sum(self.counts)

    def adapted(self, x: torch.Tensor) -> torch.Tensor:
        """The tokens of x [N, ..] that have an adapter."""
        return x[self.bare :] if self.bare else x

    @property
    def slots(self) -> slice:
        """The slots between the first and the last that have tokens."""
        return slice(self.first, self.first + len(self.counts))


@dataclass(frozen=True)
class Mixture:
    """What each slot's adapter adds to each token, without a word about segments: ``weights`` [N, S] are alpha / rank at the token's slot,
    else 0, everywhere for a token of the bare base. Shapes do not depend on which tokens are whose, as CUDA graphs demand."""

    weights: torch.Tensor

    @property
    def tokens(self) -> int:
        """Length of the packed row."""
        return len(self.weights)


def product(
    x: torch.Tensor, w: torch.Tensor, route: Route, into: torch.Tensor | None = None, alpha: float = 1.0, backend: str = "auto"
) -> torch.Tensor:
    """x_s @ w_s for each segment: x [N, k] and w [segments, k, n] -> [N, n]; ``alpha`` times it is added to ``into`` in place where that
    is given."""
    return BACKENDS[_choose(x, w, route, into) if backend == "auto" else backend][0](x, w, route, into, alpha)


def outer(x: torch.Tensor, y: torch.Tensor, route: Route, into: torch.Tensor, backend: str = "auto") -> None:
    """Add x_s^T @ y_s of each segment to ``into`` [segments, k, n], for x [N, k] and y [N, n]."""
    BACKENDS[_choose(x, y, route, into) if backend == "auto" else backend][1](x, y, route, into)


def _choose(x: torch.Tensor, w: torch.Tensor, route: Route, into: torch.Tensor | None) -> str:
    """bmm wins where segments are equal. Else grouped_mm, if its operands are aligned; but on the CPU, where both walk over the
    segments one by one, the loop when it can add in place."""
    if route.even:
        return "bmm"
    if (into is not None or w.dim() == 2) and x.device.type == "cpu":
        return "loop"
    return "grouped" if all(place % ALIGNMENT == 0 for tensor in (x, w) for place in _places(tensor)) else "loop"


def _places(tensor: torch.Tensor) -> list[int]:
    """Where a tensor and its rows begin, in bytes."""
    return [tensor.data_ptr(), *(size * tensor.element_size() for size in tensor.stride() if size != 1)]


def _loop_product(x: torch.Tensor, w: torch.Tensor, route: Route, into: torch.Tensor | None, alpha: float) -> torch.Tensor:
    if into is None:
        return torch.cat([part @ own for part, own in zip(x.split(route.counts), w, strict=True)])
    for part, own, out in zip(x.split(route.counts), w, into.split(route.counts), strict=True):
        out.addmm_(part, own, alpha=alpha)
    return into


def _loop_outer(x: torch.Tensor, y: torch.Tensor, route: Route, into: torch.Tensor) -> None:
    for left, right, out in zip(x.split(route.counts), y.split(route.counts), into, strict=True):
        out.add_(left.T @ right)


def _bmm_product(x: torch.Tensor, w: torch.Tensor, route: Route, into: torch.Tensor | None, alpha: float) -> torch.Tensor:
    segments = x.view(len(w), -1, x.shape[1])
    if into is None:
        return torch.bmm(segments, w).view(len(x), -1)
    into.view(len(w), -1, into.shape[1]).baddbmm_(segments, w, alpha=alpha)
    return into


def _bmm_outer(x: torch.Tensor, y: torch.Tensor, route: Route, into: torch.Tensor) -> None:
    into += torch.bmm(x.view(len(into), -1, x.shape[1]).mT, y.view(len(into), -1, y.shape[1]))


def _grouped_product(x: torch.Tensor, w: torch.Tensor, route: Route, into: torch.Tensor | None, alpha: float) -> torch.Tensor:
    found = F.grouped_mm(x, w, offs=route.ends)
    return found if into is None else into.add_(found, alpha=alpha)


def _grouped_outer(x: torch.Tensor, y: torch.Tensor, route: Route, into: torch.Tensor) -> None:
    into += F.grouped_mm(x.T, y, offs=route.ends)


BACKENDS = {"loop": (_loop_product, _loop_outer), "bmm": (_bmm_product, _bmm_outer), "grouped": (_grouped_product, _grouped_outer)}
