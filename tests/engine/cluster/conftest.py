"""A population on the tiny base whose adapters do something, and rows to learn from with made-up old log-probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from local_crew import SETTINGS, SLOTS, VOCABULARY, stirred

from populora.core.config import BaseConfig
from populora.engine.cluster.learner_actor import LearnerHost
from populora.engine.learning.batching import TrainRow
from populora.engine.learning.learner import Learner
from populora.engine.model.loading import load_base
from populora.engine.model.model import AdaptedModel


@pytest.fixture
def alone() -> Learner:
    """One process's learner: the oracle."""
    lora = SETTINGS.lora
    adapted = AdaptedModel(load_base(BaseConfig())[0], lora.targets, SLOTS, lora.rank, lora.alpha)
    stirred(adapted.bank)
    return Learner(adapted, SETTINGS.learner, agreement=float("inf"))


@pytest.fixture
def uneven_rows() -> list[TrainRow]:
    """Of all slots but the last, which has only rows without an advantage; slot 0 has most."""
    rng = np.random.default_rng(5)
    rows = []
    for slot in range(SLOTS):
        for _ in range(12 if slot == 0 else 2):
            prompt = rng.integers(2, VOCABULARY, int(rng.integers(4, 20))).tolist()
            for _ in range(3):
                tokens = rng.integers(2, VOCABULARY, int(rng.integers(2, 40))).tolist()
                old = rng.normal(-5.0, 1.0, len(tokens)).tolist()
                rows.append(TrainRow(slot, prompt, tokens, old, 0.0 if slot == SLOTS - 1 else float(rng.normal())))
    return [rows[index] for index in rng.permutation(len(rows))]


@pytest.fixture
def make_host():
    """``make_host(owned)``: an open learner of these slots."""

    def make(owned) -> LearnerHost:
        host = LearnerHost()
        host.described = host.open(SETTINGS, owned, [None], "")
        return host

    return make
