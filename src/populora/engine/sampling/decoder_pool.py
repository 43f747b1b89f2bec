"""Choose and keep the decoders of a sampler's streams."""

import torch

from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.native.compiled import describe
from populora.engine.native.decoder import CACHED_BYTES, CACHED_ROWS, NativeDecoder, prepare
from populora.engine.native.packed_model import PackedModel
from populora.engine.sampling.decoders import Decoder, EagerDecoder
from populora.engine.sampling.graph_decoder import Capture, GraphDecoder, cuda_graph


class DecoderPool:
    """Makes the decoders of a sampler's streams, of ``rows`` rows and ``cache_mb`` MiB at most, and keeps those in C and of graphs.

    Their memory and graphs are slow to make anew. ``capture`` makes graphs, by default on CUDA only.
    """

    def __init__(self, adapted: AdaptedModel, rows: int, cache_mb: int = 1024, capture: Capture | None = None):
        self.adapted, self.rows, self.cache_mb = adapted, rows, cache_mb
        self.capture = cuda_graph if capture is None and adapted.device.type == "cuda" else capture
        self._native: PackedModel | str = "" if self.capture else prepare(adapted)
        self._idle: list[GraphDecoder | NativeDecoder] = []

    @property
    def description(self) -> str:
        """Name what decodes, and on a CPU where that is torch, why."""
        if self.capture:
            return "CUDA graphs"
        return describe(self._native.functions if isinstance(self._native, PackedModel) else self._native)

    @property
    def native(self) -> bool:
        """Whether the decoders are in C."""
        return isinstance(self._native, PackedModel)

    def best_rows(self, limit: int) -> int:
        """Return how many of at most ``limit`` rows to decode at a time."""
        small = isinstance(self._native, PackedModel) and self._native.bytes <= CACHED_BYTES
        return min(limit, CACHED_ROWS * torch.get_num_threads()) if small else limit

    def acquire(self, rows: int, max_tokens: int) -> Decoder:
        """Return an empty decoder for at most ``rows`` rows of ``max_tokens`` tokens."""
        size, threads = (rows, max_tokens), torch.get_num_threads()
        if isinstance(self._native, PackedModel):
            fitting = [decoder for decoder in self._idle if isinstance(decoder, NativeDecoder) and decoder.size == (*size, threads)]
            self._idle = [*fitting[1:]]  # others would hold memory that no stream may ever need again
            return fitting[0] if fitting else NativeDecoder(self._native, *size, threads)
        if self.capture is None:
            return EagerDecoder(self.adapted)
        return self._idle.pop() if self._idle else GraphDecoder(self.adapted, self.rows, self.cache_mb, self.capture)

    def release(self, decoder: Decoder) -> None:
        """Take back the decoder of a stream whose rows have all left. Do not give back one whose stream broke off."""
        if isinstance(decoder, GraphDecoder):
            decoder.forget()
        if isinstance(decoder, GraphDecoder | NativeDecoder):
            self._idle.append(decoder)
