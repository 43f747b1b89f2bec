"""Joining Ray, and the places of a run's actors in it.

One placement group holds the whole run, reserved before any model is loaded. A bundle has the GPUs of one engine; the learners that
share these GPUs with it and a part of the verifiers are in it too. Ray counts an engine's GPUs for the engine alone, because it cannot
share several out by fractions: learners of the bundle are told which of them to see.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from populora.core.config import Config
from populora.core.errors import ClusterError, ConfigError
from populora.core.invocation import install_extra

AUTO = "auto"
CONNECT_SECONDS = 5.0


@dataclass(frozen=True)
class Place:
    """Where an actor runs: a bundle, and which of the bundle's GPUs it sees (none: all of them, or none on a CPU)."""

    bundle: int
    gpu: int | None = None


@dataclass(frozen=True)
class Places:
    """Of all actors of a run. ``bundles`` are Ray's resources of each."""

    bundles: tuple[dict[str, float], ...]
    engines: tuple[Place, ...]
    learners: tuple[Place, ...]
    """Learner by learner, the processes that share one base side by side."""
    verifiers: tuple[Place, ...]


def places(config: Config) -> Places:
    """Engines one a bundle; learners on their GPUs in order; verifiers by turns. On a CPU, as many bundles as the most of a kind."""
    cluster, threads = config.cluster, float(config.threads or 1)
    processes, each = cluster.learners * cluster.shards, config.engine.tensor_parallel
    on_gpu = config.base.device != "cpu"
    count = cluster.engines if on_gpu else max(cluster.engines, processes, cluster.verifiers)
    engines = tuple(Place(index) for index in range(cluster.engines))
    learners = tuple(Place(index // each, index % each) if on_gpu else Place(index) for index in range(processes))
    verifiers = tuple(Place(index % count) for index in range(cluster.verifiers))
    bundles: list[dict[str, float]] = [{"CPU": 0.0, **({"GPU": float(each)} if on_gpu else {})} for _ in range(count)]
    for place in (*engines, *learners):
        bundles[place.bundle]["CPU"] += threads
    for place in verifiers:
        bundles[place.bundle]["CPU"] += config.sandbox.workers
    return Places(tuple(bundles), engines, learners, verifiers)


@dataclass(frozen=True)
class Session:
    """A run's share of a Ray cluster. ``group`` is its placement group."""

    ray: Any
    group: Any
    places: Places

    def options(self, place: Place, cpus: float, gpus: float = 0.0) -> dict[str, Any]:
        """Options of an actor at a place. It is never restarted by Ray: what it had in memory would be gone, unnoticed."""
        strategy = import_module("ray.util.scheduling_strategies").PlacementGroupSchedulingStrategy
        where = strategy(self.group, placement_group_bundle_index=place.bundle)
        return {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0, "scheduling_strategy": where}


@contextmanager
def session(config: Config) -> Iterator[Session]:
    """Join or start Ray and reserve the places. Raises `ConfigError` if that cannot be had; all actors end with the block."""
    ray, wanted = checked_ray(), places(config)
    _join(ray, config, wanted)
    try:
        _check_resources(ray, wanted)
        group = import_module("ray.util").placement_group([dict(bundle) for bundle in wanted.bundles], strategy="PACK")
        if not group.wait(config.cluster.wait_seconds):
            raise ClusterError(
                f"expected room for {_counted(wanted)} within cluster.wait_seconds ({config.cluster.wait_seconds:g}): the cluster has as "
                "much, but in use or not together on its machines. See `ray status`."
            )
        yield Session(ray, group, wanted)
        import_module("ray.util").remove_placement_group(group)
    finally:
        ray.shutdown()


def checked_ray() -> Any:
    """The module. Raises `ConfigError` if it is missing."""
    if find_spec("ray") is None:
        raise ConfigError(f"cluster.learners is set: it needs Ray, which is not installed. `{install_extra('cluster')}` installs it.")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # what an aborted update raised, which nobody waits for any more
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    return import_module("ray")


def _join(ray: Any, config: Config, wanted: Places) -> None:
    address = config.cluster.address
    options = {"log_to_driver": False, "logging_level": logging.ERROR}
    if not address:
        # Counts of CPUs are for machines that share work: on this one more processes than cores are allowed, and slow.
        cpus = max(float(os.cpu_count() or 1), sum(bundle["CPU"] for bundle in wanted.bundles))
        ray.init(num_cpus=int(cpus), include_dashboard=False, **options)
        return
    if address != AUTO:
        _check_reachable(address)
    try:
        ray.init(address=address, **options)
    except ConnectionError as error:
        raise ConfigError(f"cluster.address is '{address}': {_reach(str(error).splitlines()[0])}") from error
    except RuntimeError as error:  # another version of Ray or Python
        raise ConfigError(f"cluster.address is '{address}': its Ray cannot be joined from here: {error}") from error


def _check_reachable(address: str) -> None:
    """Ray itself tries for a minute, and writes into the terminal."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        raise ConfigError(f"cluster.address is '{address}': expected 'host:port', '{AUTO}', or nothing for a Ray of its own")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cluster.address is '{address}': {_reach(str(error))}") from error


def _reach(found: str) -> str:
    return (
        f"no Ray is reachable there ({found}). Start one with `ray start --head`, or leave cluster.address empty for one of this machine."
    )


def _check_resources(ray: Any, wanted: Places) -> None:
    found = ray.cluster_resources()
    for kind in ("GPU", "CPU"):
        needed = sum(bundle.get(kind, 0.0) for bundle in wanted.bundles)
        if needed > found.get(kind, 0.0):
            raise ConfigError(
                f"{_counted(wanted)} need {needed:g} {kind}s, the cluster has {found.get(kind, 0.0):g}: ask for fewer (cluster.engines, "
                "cluster.learners, cluster.verifiers, sandbox.workers), or add machines with `ray start`"
            )


def _counted(wanted: Places) -> str:
    return f"{len(wanted.engines)} engines, {len(wanted.learners)} learning processes and {len(wanted.verifiers)} verifiers"
