"""Rows of a made-up step: as many as the paper's, with log-normal response lengths. Only lengths matter; tokens are placeholders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from populora.core.rng import stream
from populora.engine.learning.batching import TrainRow

PROMPTS, SAMPLES, PROMPT_TOKENS, LONGEST = 72, 8, 500, 8096
BETWEEN, WITHIN = 0.5, 0.85
"""Standard deviations of the logarithm of a response's length: between the prompts of an adapter, and within a prompt."""
POPULATIONS = {
    "alike": "all adapters have a mean of 1,000 tokens a response, before the cut",
    "means x 2": "their means lie within a factor of 2, log-uniform",
    "means x 4": "their means lie within a factor of 4, log-uniform",
    "idle and short": "of eight adapters one has no rows and two have a mean of 250",
    "small step": "alike, but 7 prompts an adapter instead of 72",
}


def rows_of(population: str, adapters: int, seed: int) -> list[TrainRow]:
    """Rows of a step, adapter by adapter."""
    rng = stream(seed, "balance", population, adapters)
    rows: list[TrainRow] = []
    for slot, mean in enumerate(_means(population, adapters, rng)):
        prompts = 7 if population == "small step" else PROMPTS if mean else 0
        levels = np.exp(rng.normal(-(BETWEEN**2) / 2, BETWEEN, (prompts, 1)))
        lengths = mean * levels * np.exp(rng.normal(-(WITHIN**2) / 2, WITHIN, (prompts, SAMPLES)))
        for number, sampled in enumerate(np.clip(lengths, 1, LONGEST).astype(int).tolist()):
            prompt = (number, *(0,) * (PROMPT_TOKENS - 1))
            rows += [TrainRow(slot, prompt, range(length), range(length), 1.0) for length in sampled]
    return rows


def _means(population: str, adapters: int, rng: np.random.Generator) -> Sequence[float]:
    factor = {"means x 2": 2.0, "means x 4": 4.0}.get(population, 1.0)
    means = 1000.0 * factor ** rng.uniform(-0.5, 0.5, adapters)
    if population == "idle and short":
        place = np.arange(adapters) % 8
        means = np.where(place == 7, 0.0, np.where(place >= 5, 250.0, means))
    return means.tolist()
