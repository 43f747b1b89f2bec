"""Compute the decoding steps of a sampler's rows in static shapes, by CUDA graphs.

A CUDA graph is a captured forward that is replayed without the host. Its rows are padded to one of a few sizes, and each size is
captured once (twice if it also occurs without any adapter). A replay reads tokens, positions, pages and adapters from tensors at fixed
addresses. Adapters are applied as `SlotWeights`: grouped products need aligned widths and, in float32 or on cards older than Hopper, read
their segments on the host, which a capture forbids (pytorch/pytorch#169970).

A graph is captured again when the pools of keys have grown and so moved. Otherwise it lives as long as its decoder, which the sampler
reuses from stream to stream (`populora.engine.sampling.decoder_pool`).
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch

from populora.core.errors import BaseModelError
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.base_shape import shape_of_model
from populora.engine.model.fusion import FusedLayers
from populora.engine.model.paged import PAGE, Mirror, PagedDecodeAttention
from populora.engine.model.segments import SegmentMap, SlotWeights
from populora.engine.planning.decoding_memory import SMALLEST_GRAPH
from populora.engine.planning.model_shape import rope_type
from populora.engine.sampling.decoders import TorchDecoder

Forward = Callable[[], torch.Tensor]
Capture = Callable[[Forward], Forward]
"""Turns a forward over tensors at fixed addresses into one that can be repeated. A repetition may overwrite the result of the last one."""


class GraphDecoder(TorchDecoder):
    """Decodes at most ``rows`` rows in static shapes, whose responses' keys and values fit into ``cache_mb`` MiB.

    Raises `BaseModelError` for a base whose forward depends on values.
    """

    cache: PagedDecodeAttention

    def __init__(self, adapted: AdaptedModel, rows: int, cache_mb: int, capture: Capture):
        if rope_type(adapted.model.config) == "dynamic":
            raise BaseModelError(
                "expected a base whose rotary frequencies are fixed, which CUDA graphs need; this one's depend on the longest row of a "
                'batch (rope_type "dynamic"). Choose another base.path, or base.device = "cpu".'
            )
        page = PAGE * shape_of_model("", adapted.model).kv_bytes(adapted.model.dtype.itemsize)
        super().__init__(adapted, PagedDecodeAttention(adapted.device, rows, adapted.context, (cache_mb << 20) // page))
        self.rows, self._capture = rows, capture
        self._ids = Mirror((rows,), torch.int64, adapted.device)
        self._weights = torch.zeros(rows, adapted.bank.slots, device=adapted.device)
        self._layers = FusedLayers(adapted.backbone.layers if adapted.device.type == "cuda" else ())
        self._slots: list[int] = []
        self._graphs: dict[tuple[int, bool], Forward] = {}  # by size, and whether any row has an adapter
        self._generation = 0

    def __call__(self, tokens: Sequence[int], slots: Sequence[int]) -> torch.Tensor:
        """See `Decoder`."""
        live = len(tokens)
        size = min(self.rows, max(SMALLEST_GRAPH, 1 << (live - 1).bit_length()))
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
            self._graphs[key] = self._capture(partial(self._forward, positions, self._segments(*key)))
        return self._graphs[key]()[:live].clone()

    def forget(self) -> None:
        """Forget the rows' adapters: another stream may have other adapters in the same slots."""
        self._slots = []

    def _segments(self, size: int, adapted: bool) -> SegmentMap | SlotWeights:
        return SlotWeights(self._weights[:size]) if adapted else SegmentMap.build([-1], [size], self.adapted.device)

    def _forward(self, positions: torch.Tensor, segments: SegmentMap | SlotWeights) -> torch.Tensor:
        with self._layers.in_use():
            return self.adapted.forward(self._ids.device[: len(positions)], positions, segments, self.cache)


def cuda_graph(forward: Forward) -> Forward:
    """Capture a forward, after two runs on a side stream that compile kernels and allocate workspaces."""
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
