"""A population on the tiny base whose adapters have an effect, and rows to learn from with made-up old log-probabilities."""

import pytest
from local_pool import SETTINGS, SLOTS
from small_models import random_rows, randomise

from populora.core.config import BaseConfig
from populora.engine.cluster.learner_actor import LearnerActor
from populora.engine.learning.batching import TrainRow
from populora.engine.learning.learner import InProcessLearner
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.loading import load_base


@pytest.fixture
def single() -> InProcessLearner:
    """One process's learner: the oracle."""
    lora = SETTINGS.lora
    adapted = randomise(AdaptedModel(load_base(BaseConfig())[0], lora.targets, SLOTS, lora.rank, lora.alpha), 0.02)
    return InProcessLearner(adapted, SETTINGS.learner, agreement=float("inf"))


@pytest.fixture
def uneven_rows() -> list[TrainRow]:
    """Rows of all slots; slot 0 has most, and those of the last have no advantage."""
    rows = random_rows(5, {slot: 2 if slot else 12 for slot in range(SLOTS)}, longest=40)
    return [row._replace(advantage=0.0) if row.slot == SLOTS - 1 else row for row in rows]


@pytest.fixture
def make_actor():
    """``make_actor(owned)``: an open learner of these slots."""

    def make(owned) -> LearnerActor:
        actor = LearnerActor()
        actor.info = actor.open(SETTINGS, owned, [None], "")
        return actor

    return make
