"""Cases of sampling: decoding steps of many adapters in one batch, and whole responses."""

import time
from collections.abc import Sequence

import numpy as np
import torch
from benchmarks.measuring import Case, Times
from benchmarks.speed.random_base import Numbers

from populora.core.types import Request
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.sampling.batch import ActiveRequest, ContinuousBatch
from populora.engine.sampling.decoder_pool import DecoderPool
from populora.engine.sampling.inprocess import InProcessSampler
from populora.engine.sampling.token_sampling import StopCondition, UniformStream

PROMPT, NEW = 32, 24
"""Tokens of a prompt and of a response."""


def requests(slots: Sequence[int], length: int = PROMPT) -> list[Request]:
    """Return a request for each entry of ``slots``; prompts are random and all different."""
    draws = np.random.default_rng(0).integers(2, 512, (len(slots), length))
    return [Request(" ".join(map(str, draw)), slot, 1, (at,)) for at, (slot, draw) in enumerate(zip(slots, draws, strict=True))]


def sampler(adapted: AdaptedModel, rows: int) -> InProcessSampler:
    adapted.model.generation_config.eos_token_id = None
    return InProcessSampler(adapted, Numbers(), seed=0, rows=rows)


def whole(sampling: InProcessSampler, slots: Sequence[int], length: int, new: int) -> Case:
    """Sample ``new`` tokens after prompts of ``length``."""
    asked = requests(slots, length)
    return lambda: sampling.generate(asked, new, 1.0, "")


def decode_steps(adapted: AdaptedModel, cases: dict[str, Sequence[int]], rounds: int) -> Times:
    """Return seconds of decoding `NEW` tokens a row after the prompts are computed; the cases take their steps in turn."""
    times: Times = {name: [] for name in cases}
    with torch.inference_mode():
        for _ in range(rounds):
            batches = {name: _batch(adapted, requests(slots)) for name, slots in cases.items()}
            for batch in batches.values():
                batch.step()
            took = dict.fromkeys(cases, 0.0)
            for turn in range(NEW - 1):
                for name in list(cases)[:: -1 if turn % 2 else 1]:
                    started = time.process_time()
                    batches[name].step()
                    took[name] += time.process_time() - started
            for name, seconds in took.items():
                times[name].append(seconds)
    return times


def _batch(adapted: AdaptedModel, asked: Sequence[Request]) -> ContinuousBatch:
    """Return rows that wait for their first step."""
    decoder = DecoderPool(adapted, 512).acquire(512, NEW + 1)
    batch = ContinuousBatch(StopCondition(Numbers(), 512, "", frozenset()), 512, NEW + 1, 1.0, decoder)
    batch.add([ActiveRequest(each, tuple(Numbers()(each.prompt)["input_ids"]), UniformStream(0, each.key, 1)) for each in asked])
    return batch
