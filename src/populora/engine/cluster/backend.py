"""A run's parts as Ray actors. This process keeps the adapters, the tokenizer and the loop; no model is loaded in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from typing import Any

import torch

from populora.adapters.adapter import Adapter
from populora.core.config import Config
from populora.core.errors import ClusterError
from populora.engine.backend import Backend
from populora.engine.cluster.actor_pool import Ask, Crew, Kind
from populora.engine.cluster.balance import owners_of
from populora.engine.cluster.calls import Call
from populora.engine.cluster.engine_actor import EngineHost
from populora.engine.cluster.learner_actor import Described, LearnerHost
from populora.engine.cluster.learning import CONTROL, ClusterLearner
from populora.engine.cluster.placement import Session, session
from populora.engine.cluster.sampling import ClusterSampler
from populora.engine.cluster.verifier_actor import VerifierHost
from populora.engine.cluster.verifying import ClusterPool
from populora.engine.model.bank import LoraBank
from populora.engine.model.loading import load_tokenizer
from populora.engine.planning.planner import check_context
from populora.sandbox.pool import limits_of

CALLS = 10_000
"""An engine answers so many calls at a time: an eager stream asks for each request by itself."""
JUDGED = 4
"""A verifier answers so many: proposals and attempts are verified beside each other."""


@contextmanager
def cluster_backend(config: Config) -> Iterator[Backend]:
    """Raises `ConfigError` for a cluster that cannot be reached or is too small, before any model is loaded. All actors end with it."""
    with ExitStack() as opened:
        joined = opened.enter_context(session(config))
        tokenizer = load_tokenizer(config.base)
        verifiers = _verifiers(config, joined)  # first: a machine without isolation is known before any model is loaded
        opened.callback(verifiers.close)
        tier = _same("verifiers", verifiers.prepared)
        published: dict[int, Adapter] = {}
        engines = engine_crew(config, joined, published)
        opened.callback(engines.close)
        learners = _learners(config, joined, engines)
        described: Described = _same("learners", learners.prepared)
        check_context(config, described.context)
        bank = LoraBank(described.layout, config.population.members, config.lora.rank, config.lora.alpha)
        dtype = getattr(torch, config.base.dtype)
        sampler = ClusterSampler(engines, published, tokenizer, dtype, config.selfplay.overlap == "eager")
        learner = ClusterLearner(config, learners, bank, described.agreement, learners.prepared)
        yield Backend(tokenizer, sampler, learner, bank, ClusterPool(verifiers), tier, described.base_sha256)


def engine_crew(config: Config, joined: Session, published: dict[int, Adapter]) -> Crew:
    """The engines of a run, each of which is given what was ``published`` when it starts, also later."""
    gpus = config.engine.tensor_parallel if config.base.device != "cpu" else 0
    kind = Kind("engine", EngineHost, config.threads or 1, gpus, calls=CALLS)
    places = [[place] for place in joined.places.engines]
    return Crew(joined, kind, places, lambda index, ask: ask("open", config, published), config.cluster.wait_seconds)


def _learners(config: Config, joined: Session, engines: Crew) -> Crew:
    cluster, every = config.cluster, joined.places.learners
    owners = owners_of(config.population.members, cluster.learners)
    places = [every[rank * cluster.shards : (rank + 1) * cluster.shards] for rank in range(cluster.learners)]

    def prepare(rank: int, ask: Ask) -> Described:
        visible = [None if place.gpu is None else engines.each([Call(place.bundle, "gpus")])[0][place.gpu] for place in places[rank]]
        return ask("open", config, [slot for slot, owner in owners.items() if owner == rank], visible, ask("address"))

    return Crew(joined, Kind("learner", LearnerHost, config.threads or 1, beside=(CONTROL,)), places, prepare, cluster.wait_seconds)


def _verifiers(config: Config, joined: Session) -> Crew:
    box = config.sandbox
    places = [[place] for place in joined.places.verifiers]
    prepare = lambda index, ask: ask("open", limits_of(box), box.workers, box.allow_weak)  # noqa: E731
    return Crew(joined, Kind("verifier", VerifierHost, box.workers, calls=JUDGED), places, prepare, config.cluster.wait_seconds)


def _same(kind: str, found: Sequence[Any]) -> Any:
    """What all found. Raises `ClusterError` if they differ."""
    for index, one in enumerate(found):
        if one != found[0]:
            mine, first = ([f"{one}"], [f"{found[0]}"]) if isinstance(one, str) else (_listed(one), _listed(found[0]))
            here, there = next((left, right) for left, right in zip(mine, first, strict=True) if left != right)
            raise ClusterError(
                f"expected all {kind} to find the same, but number {index} has {here} and number 0 {there}: the machines differ in "
                "their base, their libraries or what they allow a sandbox; make them alike"
            )
    return found[0]


def _listed(described: Described) -> list[str]:
    return [f"{item.name} {getattr(described, item.name)}" for item in fields(described) if item.compare]
