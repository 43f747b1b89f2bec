"""What computes the decoding steps of a sampler's rows: the interface, and torch in the shapes at hand.

Others are `populora.engine.native.decoder` in C, and `populora.engine.sampling.graph_decoder` by CUDA graphs.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Protocol, cast

import numpy as np
import torch

from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.attention import KeyValues, PackedAttention
from populora.engine.model.decode_cache import DecodeAttention
from populora.engine.model.flex import FlexPackedAttention
from populora.engine.model.fusion import fused
from populora.engine.model.packing import PromptGroup
from populora.engine.model.segments import SegmentMap
from populora.engine.sampling.token_sampling import sample_tokens


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
    @property
    def spreads_slots(self) -> bool:
        """Whether rows of all adapters are decoded best together, in equal numbers, rather than those of few adapters."""
        ...

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

    spreads_slots = True

    def __init__(self, adapted: AdaptedModel, cache: TorchCache):
        self.adapted, self.cache = adapted, cache

    def prefill(self, prompts: Sequence[Sequence[int]], slots: Sequence[int]) -> tuple[list[int], torch.Tensor]:
        """See `Decoder`."""
        packed = self.adapted.pack([PromptGroup(slot, prompt) for slot, prompt in zip(slots, prompts, strict=True)], keep=True)
        hidden = self.adapted.forward(packed.ids, packed.positions, packed.segments, packed.plan)[packed.last]
        kept = cast(PackedAttention | FlexPackedAttention, packed.plan).kept
        return self.cache.add_prompts(kept, [len(prompt) for prompt in prompts]), hidden

    def sample(self, hidden: torch.Tensor, temperature: float, uniforms: np.ndarray) -> tuple[list[int], list[float], list[float]]:
        """See `Decoder`."""
        draw = fused(sample_tokens) if hidden.is_cuda else sample_tokens
        tokens, logprobs, entropies = draw(self.adapted.head(hidden), temperature, torch.from_numpy(uniforms).to(hidden.device))
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
