"""How rows are given one token each: on a CPU in the shapes that there are, on CUDA in static shapes by CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Protocol

import numpy as np
import torch

from populora.engine.model.attention import KeyValues
from populora.engine.model.decode_cache import DecodeAttention
from populora.engine.model.model import AdaptedModel
from populora.engine.model.routing import Route
from populora.engine.sampling.graphs import Capture, StaticSteps, cuda_graph


class Cache(Protocol):
    """Keys and values of prompts and rows; see `populora.engine.model.decode_cache.DecodeAttention`."""

    def add_prompts(self, kept: dict[int, KeyValues], lengths: Sequence[int]) -> list[int]: ...
    def drop_prompts(self, numbers: Sequence[int]) -> None: ...
    def add_rows(self, prompts: Sequence[int]) -> None: ...
    def keep_rows(self, rows: np.ndarray) -> None: ...


class Steps(Protocol):
    """The cache of the rows, which are sorted by slot, and a step of all of them."""

    @property
    def cache(self) -> Cache: ...
    def __call__(self, tokens: Sequence[int], slots: Sequence[int]) -> torch.Tensor:
        """Hidden states [n, d] of the n rows' new tokens, given the rows' slots."""
        ...


class EagerSteps:
    """Steps in the shapes that there are."""

    def __init__(self, adapted: AdaptedModel):
        self.adapted, self.cache = adapted, DecodeAttention(adapted.device)

    def __call__(self, tokens: Sequence[int], slots: Sequence[int]) -> torch.Tensor:
        """See `Steps`."""
        counts = {slot: len(list(rows)) for slot, rows in groupby(slots)}
        route = Route.of(list(counts), list(counts.values()), self.adapted.device)
        return self.adapted.forward(torch.tensor(tokens, device=self.adapted.device), self.cache.step(), route, self.cache)


class Decoding:
    """Makes the steps of a sampler's streams. Static ones are used again when their stream is over, for the graphs they hold;
    ``capture`` makes these, by default on CUDA only."""

    def __init__(self, adapted: AdaptedModel, rows: int, capture: Capture | None = None):
        self.adapted, self.rows = adapted, rows
        self.capture = cuda_graph if capture is None and adapted.device.type == "cuda" else capture
        self._idle: list[StaticSteps] = []

    def start(self) -> Steps:
        """Steps for a stream, without any rows."""
        if self.capture is None:
            return EagerSteps(self.adapted)
        return self._idle.pop() if self._idle else StaticSteps(self.adapted, self.rows, self.capture)

    def finish(self, steps: Steps) -> None:
        """Give back the steps of a stream whose rows have all left; those of one that broke off are not given back."""
        if isinstance(steps, StaticSteps):
            steps.forget()
            self._idle.append(steps)
