"""Compute one decoding step for all rows: in C on a CPU, by torch in the shapes at hand, or in static shapes by CUDA graphs.

A CUDA graph is a captured forward that is replayed without the host. Its rows are padded to one of a few sizes, and each size is
captured once (twice if it also occurs without any adapter). A replay reads tokens, positions, pages and adapters from tensors at fixed
addresses. Adapters are applied as `SlotWeights`: grouped products need aligned widths and, in float32 or on cards older than Hopper, read
their segments on the host, which a capture forbids (pytorch/pytorch#169970).

A graph is captured again when the pools of keys have grown and so moved. Otherwise it lives as long as its decoder, which the sampler
reuses from stream to stream (`DecoderPool`). The decoder in C is `populora.engine.native`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Protocol

import numpy as np
import torch

from populora.core.errors import BaseModelError
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.attention import KeyValues
from populora.engine.model.decode_cache import DecodeAttention
from populora.engine.model.packing import PromptGroup, pack
from populora.engine.model.paged import Mirror, PagedDecodeAttention
from populora.engine.model.segments import SegmentMap, SlotWeights
from populora.engine.native.decoder import NativeDecoder, prepare
from populora.engine.native.packed_model import PackedModel
from populora.engine.sampling.token_sampling import sample_tokens

SMALLEST = 8  # rows of the smallest graph: fewer take as long
Forward = Callable[[], torch.Tensor]
Capture = Callable[[Forward], Forward]
"""Turns a forward over tensors at fixed addresses into one that can be repeated. A repetition may overwrite the result of the last one."""


class Cache(Protocol):
    """The keys and values of prompts and rows."""

    def drop_prompts(self, numbers: Sequence[int]) -> None: ...
    def add_rows(self, prompts: Sequence[int]) -> None: ...
    def keep_rows(self, rows: np.ndarray) -> None: ...


class TorchCache(Cache, Protocol):
    """`DecodeAttention` or `PagedDecodeAttention`."""

    def add_prompts(self, kept: dict[int, KeyValues], lengths: Sequence[int]) -> list[int]: ...


class Decoder(Protocol):
    """The cache of the rows, which are sorted by slot, and what computes their next tokens."""

    @property
    def cache(self) -> Cache: ...
    def prefill(self, prompts: Sequence[Sequence[int]], slots: Sequence[int]) -> tuple[list[int], torch.Tensor]:
        """Compute prompts, sorted by slot. Returns their numbers in the cache, and the hidden states [G, d] of their last tokens."""
        ...

    def __call__(self, tokens: Sequence[int], slots: Sequence[int]) -> torch.Tensor:
        """Return the hidden states [n, d] of the n rows' new tokens, given the rows' slots."""
        ...

    def sample(self, hidden: torch.Tensor, temperature: float, uniforms: np.ndarray) -> tuple[list[int], list[float], list[float]]:
        """Draw the next token after each hidden state [n, d] by its number in ``uniforms`` [n] (`sample_tokens`)."""
        ...


class TorchDecoder:
    """Computes prompts and draws tokens by torch."""

    def __init__(self, adapted: AdaptedModel, cache: TorchCache):
        self.adapted, self.cache = adapted, cache

    def prefill(self, prompts: Sequence[Sequence[int]], slots: Sequence[int]) -> tuple[list[int], torch.Tensor]:
        """See `Decoder`."""
        packed = pack([PromptGroup(slot, prompt) for slot, prompt in zip(slots, prompts, strict=True)], self.adapted.device, keep=True)
        hidden = self.adapted.forward(packed.ids, packed.positions, packed.segments, packed.plan)[packed.last]
        return self.cache.add_prompts(packed.plan.kept, [len(prompt) for prompt in prompts]), hidden

    def sample(self, hidden: torch.Tensor, temperature: float, uniforms: np.ndarray) -> tuple[list[int], list[float], list[float]]:
        """See `Decoder`."""
        tokens, logprobs, entropies = sample_tokens(self.adapted.logits(hidden), temperature, torch.from_numpy(uniforms))
        return tokens.tolist(), logprobs.tolist(), entropies.tolist()


class EagerDecoder(TorchDecoder):
    """Decodes in the shapes at hand."""

    cache: DecodeAttention

    def __init__(self, adapted: AdaptedModel):
        super().__init__(adapted, DecodeAttention(adapted.device))

    def __call__(self, tokens: Sequence[int], slots: Sequence[int]) -> torch.Tensor:
        """See `Decoder`."""
        counts = {slot: len(list(rows)) for slot, rows in groupby(slots)}
        segments = SegmentMap.build(list(counts), list(counts.values()), self.adapted.device)
        return self.adapted.forward(torch.tensor(tokens, device=self.adapted.device), self.cache.step(), segments, self.cache)


class GraphDecoder(TorchDecoder):
    """Decodes at most ``rows`` rows in static shapes. Raises `BaseModelError` for a base whose forward depends on values."""

    cache: PagedDecodeAttention

    def __init__(self, adapted: AdaptedModel, rows: int, capture: Capture):
        rope = getattr(adapted.model.config, "rope_parameters", None) or {}
        if rope.get("rope_type") == "dynamic":
            raise BaseModelError(
                "expected a base whose rotary frequencies are fixed, which CUDA graphs need; this one's depend on the longest row of a "
                'batch (rope_type "dynamic"). Choose another base.path, or base.device = "cpu".'
            )
        super().__init__(adapted, PagedDecodeAttention(adapted.device, rows, adapted.context))
        self.rows, self._capture = rows, capture
        self._ids = Mirror((rows,), torch.int64, adapted.device)
        self._weights = torch.zeros(rows, adapted.bank.slots, dtype=adapted.head.weight.dtype, device=adapted.device)
        self._slots: list[int] = []
        self._graphs: dict[tuple[int, bool], Forward] = {}  # by size, and whether any row has an adapter
        self._generation = 0

    def __call__(self, tokens: Sequence[int], slots: Sequence[int]) -> torch.Tensor:
        """See `Decoder`."""
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
            self._graphs[key] = self._capture(partial(self._forward, positions, self._segments(*key)))
        return self._graphs[key]()[:live].clone()

    def forget(self) -> None:
        """Forget the rows' adapters: another stream may have other adapters in the same slots."""
        self._slots = []

    def _segments(self, size: int, adapted: bool) -> SegmentMap | SlotWeights:
        return SlotWeights(self._weights[:size]) if adapted else SegmentMap.build([-1], [size], self.adapted.device)

    def _forward(self, positions: torch.Tensor, segments: SegmentMap | SlotWeights) -> torch.Tensor:
        return self.adapted.forward(self._ids.device[: len(positions)], positions, segments, self.cache)


class DecoderPool:
    """Makes the decoders of a sampler's streams, of at most ``rows`` rows, and keeps graph decoders for reuse.

    ``capture`` makes graphs, by default on CUDA only. ``choice`` is `EngineConfig.decoder`.
    """

    def __init__(self, adapted: AdaptedModel, rows: int, choice: str = "auto", capture: Capture | None = None):
        self.adapted, self.rows = adapted, rows
        self.capture = cuda_graph if capture is None and adapted.device.type == "cuda" else capture
        self._native: PackedModel | str = ""
        if self.capture is None:
            self._native = prepare(adapted) if choice == "auto" else f'engine.decoder = "{choice}"'
        self._idle: list[GraphDecoder] = []

    @property
    def description(self) -> str:
        """Name what decodes, and on a CPU where that is torch, why."""
        if isinstance(self._native, PackedModel):
            return f"C ({self._native.functions.description().decode()})"
        return "CUDA graphs" if self.capture else f"torch ({self._native})"

    def acquire(self, rows: int, max_tokens: int) -> Decoder:
        """Return an empty decoder for at most ``rows`` rows of ``max_tokens`` tokens."""
        if isinstance(self._native, PackedModel):
            return NativeDecoder(self._native, rows, max_tokens, torch.get_num_threads())
        if self.capture is None:
            return EagerDecoder(self.adapted)
        return self._idle.pop() if self._idle else GraphDecoder(self.adapted, self.rows, self.capture)

    def release(self, decoder: Decoder) -> None:
        """Take back the decoder of a stream whose rows have all left. Do not give back one whose stream broke off."""
        if isinstance(decoder, GraphDecoder):
            decoder.forget()
            self._idle.append(decoder)


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
