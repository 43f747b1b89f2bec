"""A population on the tiny base whose adapters have an effect, and rows to learn from with made-up old log-probabilities."""

import math
from dataclasses import replace

import pytest
from local_pool import SETTINGS, SLOTS, LocalPool, Reference
from small_models import random_rows, randomise

from populora.core.config import BaseConfig
from populora.engine.cluster.cluster_bank import ClusterBank, StoredSlot
from populora.engine.cluster.cluster_learner import ClusterLearner
from populora.engine.cluster.learner_actor import LearnerActor
from populora.engine.cluster.load_balancing import owners_of
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

    def make(owned, device: str = "cpu") -> LearnerActor:
        actor = LearnerActor()
        actor.info = actor.open(replace(SETTINGS, base=BaseConfig(device=device)), owned, [None], "")
        return actor

    return make


@pytest.fixture
def make_learner(make_actor, single):
    """``make_learner(members)``: a pool of learners with the adapters of ``single``."""

    def make(members: int, dies=(), agreement: float = math.inf, gone=(), device: str = "cpu") -> ClusterLearner:
        owners, stored, start = owners_of(SLOTS, members), {}, single.adapted.bank.state()

        def started(index: int):
            """A learner with what is stored of its slots, or at first those of the oracle."""
            actor = make_actor(owned := [slot for slot, owner in owners.items() if owner == index], device)
            for slot in owned:
                actor.load([slot], stored[slot].state.value if stored else {name: part[[slot]] for name, part in start.items()})
            return actor

        pool = LocalPool(started, members, dies, gone)
        bank = ClusterBank(pool, SLOTS, stored)
        for slot, owner in owners.items():
            _, *parts = pool.members[owner]._stored(None, [slot])
            stored[slot] = StoredSlot(*map(Reference, parts), False)
        learner = ClusterLearner(SETTINGS, pool, bank, [member.info for member in pool.members])
        learner.agreement = agreement
        return learner

    return make
