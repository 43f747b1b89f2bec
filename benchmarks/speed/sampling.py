"""Cases of sampling: decoding steps of many adapters in one batch, whole responses, and rows that are refilled."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from benchmarks.measuring import Case, Times

from populora.core.types import Request
from populora.engine.model.model import AdaptedModel
from populora.engine.sampling.batch import ActiveRequest, ContinuousBatch
from populora.engine.sampling.decoders import Capture, DecoderPool, EagerDecoder
from populora.engine.sampling.inprocess import InProcessSampler
from populora.engine.sampling.token_sampling import StopCondition, UniformStream

PROMPT, NEW = 32, 24
"""Tokens of a prompt and of a response."""


class Numbers:
    """A tokenizer of texts that are token ids with spaces between."""

    eos_token_id = None

    def __len__(self) -> int:
        return 0

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [int(word) for word in text.split()]}

    def decode(self, tokens: Sequence[int], **options: Any) -> str:
        return ""


def requests(slots: Sequence[int], samples: int = 1, length: int = PROMPT) -> list[Request]:
    """Return a request for each entry of ``slots``; prompts are random and all different."""
    draws = np.random.default_rng(0).integers(2, 512, (len(slots), length))
    return [Request(" ".join(map(str, draw)), slot, samples, (at,)) for at, (slot, draw) in enumerate(zip(slots, draws, strict=True))]


def sampler(adapted: AdaptedModel, rows: int = 512, capture: Capture | None = None) -> InProcessSampler:
    """Return a sampler; ``capture`` overrides how its steps are captured."""
    adapted.model.generation_config.eos_token_id = None
    made = InProcessSampler(adapted, Numbers(), seed=0, rows=rows)
    if capture is not None:
        made.decoders = DecoderPool(adapted, rows, capture)
    return made


def whole(sampling: InProcessSampler, slots: Sequence[int], samples: int = 1, length: int = PROMPT, new: int = NEW) -> Case:
    """Sample ``new`` tokens after prompts of ``length``."""
    asked = requests(slots, samples, length)
    return lambda: sampling.generate(asked, new, 1.0, "")


def decode_steps(adapted: AdaptedModel, cases: dict[str, Sequence[int]], rounds: int) -> Times:
    """Return seconds of decoding `NEW` tokens a row after the prompts are computed; the cases take their steps in turn."""
    times: Times = {name: [] for name in cases}
    with torch.inference_mode():
        for _ in range(rounds):
            decks = {name: _deck(ContinuousBatch, adapted, requests(slots), 512, NEW + 1) for name, slots in cases.items()}
            for deck in decks.values():
                deck.step()
            took = dict.fromkeys(cases, 0.0)
            for turn in range(NEW - 1):
                for name in list(cases)[:: -1 if turn % 2 else 1]:
                    started = time.process_time()
                    decks[name].step()
                    took[name] += time.process_time() - started
            for name, seconds in took.items():
                times[name].append(seconds)
    return times


def _deck(kind: type[ContinuousBatch], adapted: AdaptedModel, asked: Sequence[Request], rows: int, longest: int) -> ContinuousBatch:
    """Return rows that wait for their first step."""
    deck = kind(adapted, StopCondition(Numbers(), 512, "", frozenset()), rows, longest, 1.0, EagerDecoder(adapted))
    deck.add([ActiveRequest(one, tuple(Numbers()(one.prompt)["input_ids"]), UniformStream(0, one.key, 1)) for one in asked])
    return deck


class _OfLength(ContinuousBatch):
    """A batch whose responses end after the number of tokens in their request's key."""

    def _write(self) -> list[bool]:
        super()._write()
        return [len(row.tokens) >= int(row.owner.request.key[-1]) for row in self._rows]


class _Wave(_OfLength):
    """A batch whose rows leave together, when all are done."""

    def _write(self) -> list[bool]:
        over = super()._write()
        return [all(over)] * len(over)


def lengths(count: int, mean: float, longest: int) -> list[int]:
    """Return log-normal lengths, as responses have them, with that mean after lengths above ``longest`` are cut."""
    draws = np.random.default_rng(1).lognormal(0.0, 1.0, count)
    scale = mean
    for _ in range(20):
        found = np.clip(np.round(draws * scale), 1, longest)
        scale *= mean / found.mean()
    return found.astype(int).tolist()


def refilled(adapted: AdaptedModel, rows: int, wanted: Sequence[int], refill: bool) -> Case:
    """Sample the ``wanted`` lengths: rows refilled, or in waves that last as long as their longest row."""
    base = requests([at % adapted.bank.slots for at in range(len(wanted))])
    asked = [Request(one.prompt, one.slot, 1, (*one.key, length)) for one, length in zip(base, wanted, strict=True)]
    waves = [asked] if refill else [asked[start : start + rows] for start in range(0, len(asked), rows)]

    @torch.inference_mode()
    def run() -> None:
        for wave in waves:
            deck = _deck(_OfLength if refill else _Wave, adapted, wave, rows, max(wanted))
            while deck.busy:
                deck.step()

    return run
