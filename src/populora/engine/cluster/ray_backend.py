"""Build the components of a run as Ray actors. The controller keeps the loop and the tokenizer, and loads no model."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from populora.core.config import Config
from populora.core.errors import ClusterError
from populora.domains.declaration import fingerprint_of
from populora.domains.registry import load_domains, sandbox_limits
from populora.engine.backend import Backend
from populora.engine.cluster.actor_pool import ActorKind, ActorPool, Call, CallMember
from populora.engine.cluster.adapter_holders import held_slots, holders_of
from populora.engine.cluster.cluster_bank import ClusterBank, StoredSlot
from populora.engine.cluster.cluster_learner import ClusterLearner
from populora.engine.cluster.cluster_sampler import ClusterSampler
from populora.engine.cluster.engine_actor import EngineActor
from populora.engine.cluster.learner_actor import LearnerActor, LearnerInfo
from populora.engine.cluster.load_balancing import owners_of
from populora.engine.cluster.placement import RayCluster, join_ray
from populora.engine.cluster.verifier_actor import ClusterVerifier, VerifierActor, VerifierInfo
from populora.engine.model.loading import load_tokenizer
from populora.engine.planning.planner import check_context
from populora.sandbox.layers import Tier

ENGINE_CALLS = 10_000
"""Concurrent calls of an engine: an eager stream makes one for each request."""
VERIFIER_CALLS = 4
"""Concurrent calls of a verifier: proposals and attempts are verified at the same time."""


@contextmanager
def cluster_backend(config: Config) -> Iterator[Backend]:
    """Start all actors of a run; they end with the block. Raises `ConfigError`, before any model is loaded, for a cluster that cannot be
    reached or is too small."""
    with ExitStack() as stack:
        cluster = stack.enter_context(join_ray(config))
        tokenizer = load_tokenizer(config.base)
        verifiers = _verifier_pool(config, cluster)  # first, so that a machine without isolation is reported before any model is loaded
        stack.callback(verifiers.close)
        isolation = agreed_isolation(config, verifiers.prepared)
        stored: dict[int, StoredSlot] = {}
        engines = engine_pool(config, cluster, stored)
        stack.callback(engines.close)
        learners = _learner_pool(config, cluster, engines, stored)
        info: LearnerInfo = _agreed("learners", learners.prepared)
        check_context(config, info.context)
        bank = ClusterBank(learners, config.population.members, stored)
        dtype = getattr(torch, config.base.dtype)
        holders = holders_of(config.population.members, config.cluster)
        sampler = ClusterSampler(engines, stored, holders, dtype, config.selfplay.overlap == "eager")
        learner = ClusterLearner(config, learners, bank, learners.prepared)
        yield Backend(tokenizer, sampler, learner, bank, ClusterVerifier(verifiers), isolation, info.base_sha256)


def engine_pool(config: Config, cluster: RayCluster, stored: Mapping[int, StoredSlot]) -> ActorPool:
    """Start the engines of a run. An engine that starts later first loads those of its adapters that are ``stored``."""
    gpus = config.engine.tensor_parallel if config.base.device != "cpu" else 0
    kind = ActorKind("engine", EngineActor, config.threads or 1, gpus, ENGINE_CALLS, breaks=True)
    places = [[place] for place in cluster.placement.engines]
    held = held_slots(holders_of(config.population.members, config.cluster), len(places))

    def prepare(index: int, call: CallMember) -> Any:
        info = call("open", config, held[index])
        if slots := [slot for slot in held[index] if slot in stored]:
            call("sync_weights", slots, *(stored[slot].adapter for slot in slots))
        return info

    return ActorPool(cluster, kind, places, prepare, config.cluster.wait_seconds)


def _learner_pool(config: Config, cluster: RayCluster, engines: ActorPool, stored: Mapping[int, StoredSlot]) -> ActorPool:
    shards, processes = config.cluster.shards, cluster.placement.learners
    owners = owners_of(config.population.members, config.cluster.learners)
    places = [processes[start : start + shards] for start in range(0, len(processes), shards)]

    def prepare(rank: int, call: CallMember) -> LearnerInfo:
        gpus = [None if place.gpu is None else engines.run([Call(place.bundle, "gpus")])[0][place.gpu] for place in places[rank]]
        owned = [slot for slot, owner in owners.items() if owner == rank]
        info = call("open", config, owned, gpus, call("address"))
        if slots := [slot for slot in owned if slot in stored]:
            call("load", slots, *(stored[slot].state for slot in slots))
        return info

    kind = ActorKind("learner", LearnerActor, config.threads or 1, breaks=True)
    return ActorPool(cluster, kind, places, prepare, config.cluster.wait_seconds)


def _verifier_pool(config: Config, cluster: RayCluster) -> ActorPool:
    box = config.sandbox
    kind = ActorKind("verifier", VerifierActor, box.workers, concurrency=VERIFIER_CALLS)
    places = [[place] for place in cluster.placement.verifiers]
    arguments = sandbox_limits(config), box.workers, box.allow_weak, config.domains
    return ActorPool(cluster, kind, places, lambda index, call: call("open", *arguments), config.cluster.wait_seconds)


def agreed_isolation(config: Config, verifiers: Sequence[VerifierInfo]) -> Tier:
    """Return the isolation of all verifiers. Raises `ClusterError` if they differ, or have other domains than the controller's machine."""
    info: VerifierInfo = _agreed("verifiers", verifiers)
    domains = fingerprint_of(load_domains(config.domains).values())
    if info.domains != domains:
        raise ClusterError(
            f"expected the verifiers to have the domains of this machine, '{domains}', got '{info.domains}': make them alike"
        )
    return info.tier


def _agreed(kind: str, values: Sequence[Any]) -> Any:
    """Return the value that all members reported. Raises `ClusterError` if they differ."""
    for index, value in enumerate(values):
        if value != values[0]:
            differing, expected = next((a, b) for a, b in zip(_fields(value), _fields(values[0]), strict=True) if a != b)
            raise ClusterError(
                f"expected all {kind} to find the same, but number {index} has {differing} and number 0 {expected}: the machines differ in "
                "their base, their libraries or what they allow a sandbox; make them alike"
            )
    return values[0]


def _fields(value: Any) -> list[str]:
    if not isinstance(value, LearnerInfo | VerifierInfo):
        return [f"{value}"]
    return [f"{name} {field}" for name, field in vars(value).items() if name != "machine"]
