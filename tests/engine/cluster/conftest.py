"""A population on the tiny base whose adapters have an effect, and rows to learn from with made-up old log-probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from local_pool import SETTINGS, SLOTS, VOCABULARY, randomise

from populora.core.config import BaseConfig
from populora.engine.cluster.learner_actor import LearnerActor
from populora.engine.learning.batching import TrainRow
from populora.engine.learning.learner import InProcessLearner
from populora.engine.model.loading import load_base
from populora.engine.model.model import AdaptedModel


@pytest.fixture
def single() -> InProcessLearner:
    """One process's learner: the oracle."""
    lora = SETTINGS.lora
    adapted = AdaptedModel(load_base(BaseConfig())[0], lora.targets, SLOTS, lora.rank, lora.alpha)
    randomise(adapted.bank)
    return InProcessLearner(adapted, SETTINGS.learner, agreement=float("inf"))


@pytest.fixture
def uneven_rows() -> list[TrainRow]:
    """Rows of all slots; slot 0 has most, and those of the last have no advantage."""
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
def make_actor():
    """``make_actor(owned)``: an open learner of these slots."""

    def make(owned) -> LearnerActor:
        actor = LearnerActor()
        actor.info = actor.open(SETTINGS, owned, [None], "")
        return actor

    return make
