"""One token for each row in static shapes, so that the forward can be captured as a CUDA graph and replayed without the host.

The rows are padded to one of few sizes, and each size is captured once (twice if it also occurs without any adapter). Which tokens,
positions, pages and adapters a replay uses it reads from tensors of a fixed place. Adapters are a `Mixture`: grouped products ask for
aligned widths and, in float32 or on cards older than Hopper, look at their segments on the host, which a capture does not allow
(pytorch/pytorch#169970).

A graph remembers where the pools of keys lie. When these grew it is captured anew; else it lives as long as this object, which the
sampler hands from stream to stream (`populora.engine.sampling.decoders`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from populora.core.errors import BaseModelError
from populora.engine.model.model import AdaptedModel
from populora.engine.model.paged import Mirror, PagedDecodeAttention
from populora.engine.model.routing import Mixture, Route

SMALLEST = 8  # rows that a graph is made for; fewer take as long
Forward = Callable[[], torch.Tensor]
Capture = Callable[[Forward], Forward]
"""From a forward over tensors that stay where they are, one that does the same again; its result may be overwritten by the next."""


def cuda_graph(forward: Forward) -> Forward:
    """Run it on the side, so that kernels are compiled and chosen and workspaces made, then capture it."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        forward()
        forward()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = forward()

    def replay() -> torch.Tensor:
        graph.replay()
        return result

    return replay


def without_graph(forward: Forward) -> Forward:
    """The forward itself: the same static shapes launched one by one, for comparison."""
    return forward


class StaticSteps:
    """The rows' cache and their forward, for at most ``rows`` rows. Raises `BaseModelError` for a base whose forward depends on values."""

    def __init__(self, adapted: AdaptedModel, rows: int, capture: Capture):
        rope = getattr(adapted.model.config, "rope_parameters", None) or {}
        if rope.get("rope_type") == "dynamic":
            raise BaseModelError(
                "expected a base whose rotary frequencies are fixed, which CUDA graphs need; this one's depend on the longest row of a "
                'batch (rope_type "dynamic"). Choose another base.path, or base.device = "cpu".'
            )
        self.adapted, self.rows, self.cache = adapted, rows, PagedDecodeAttention(adapted.device, rows, adapted.context)
        self._capture = capture
        self._ids = Mirror((rows,), torch.int64, adapted.device)
        self._weights = torch.zeros(rows, adapted.bank.slots, dtype=adapted.head.weight.dtype, device=adapted.device)
        self._slots: list[int] = []
        self._graphs: dict[tuple[int, bool], Forward] = {}  # by size, and whether any row has an adapter
        self._generation = 0

    def __call__(self, tokens: Sequence[int], slots: Sequence[int]) -> torch.Tensor:
        """Hidden states [n, d] of the n rows' new tokens, given the rows' slots."""
        live = len(tokens)
        size = min(self.rows, max(SMALLEST, 1 << (live - 1).bit_length()))
        self._ids.host[:live], self._ids.host[live:] = tokens, 0
        self._ids.send()
        if slots != self._slots:
            self._weights[:live] = self.adapted.bank.weights()[list(slots)].to(self._weights)
            self._weights[live:] = 0.0
            self._slots = list(slots)
        positions = self.cache.step(size)
        if self._generation != self.cache.generation:
            self._graphs, self._generation = {}, self.cache.generation
        key = size, any(slot >= 0 for slot in slots)
        if key not in self._graphs:
            self._graphs[key] = self._capture(partial(self._forward, positions, self._route(*key)))
        return self._graphs[key]()[:live].clone()

    def forget(self) -> None:
        """Another stream may have other adapters in the same slots."""
        self._slots = []

    def _route(self, size: int, adapted: bool) -> Route | Mixture:
        return Mixture(self._weights[:size]) if adapted else Route.of([-1], [size], self.adapted.device)

    def _forward(self, positions: torch.Tensor, route: Route | Mixture) -> torch.Tensor:
        return self.adapted.forward(self._ids.device[: len(positions)], positions, route, self.cache)
