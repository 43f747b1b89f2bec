"""Join a Ray cluster and reserve the resources of a run.

One placement group holds the whole run, reserved before any model is loaded. A bundle has the GPUs of one engine, the learners that share
these GPUs with it, and a part of the verifiers. Ray assigns a bundle's GPUs to the engine alone, because it cannot share several GPUs by
fractions; learners are told which of them to use.
"""

import logging
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
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
class ActorPlace:
    """A bundle, and the index of the bundle's GPU that a learner uses (None: all of them for an engine; no GPU on a CPU)."""

    bundle: int
    gpu: int | None = None


@dataclass(frozen=True)
class Placement:
    """Places of all actors of a run. ``bundles`` are the Ray resources of each bundle; processes that share a base are adjacent."""

    bundles: tuple[dict[str, float], ...]
    engines: tuple[ActorPlace, ...]
    learners: tuple[ActorPlace, ...]
    verifiers: tuple[ActorPlace, ...]

    def __str__(self) -> str:
        return f"{len(self.engines)} engines, {len(self.learners)} learning processes and {len(self.verifiers)} verifiers"

    def total(self, resource: str) -> float:
        """Sum a resource over all bundles."""
        return sum(bundle.get(resource, 0.0) for bundle in self.bundles)


def place_actors(config: Config) -> Placement:
    """Assign engines one to a bundle, learners to the GPUs in order and verifiers round-robin. On a CPU there are as many bundles as the
    largest number of actors of one kind."""
    cluster, threads = config.cluster, float(config.threads or 1)
    processes, engine_gpus = cluster.learners * cluster.shards, config.engine.tensor_parallel
    on_gpu = config.base.device != "cpu"
    count = cluster.engines if on_gpu else max(cluster.engines, processes, cluster.verifiers)
    engines = tuple(ActorPlace(index) for index in range(cluster.engines))
    learners = tuple(ActorPlace(index // engine_gpus, index % engine_gpus) if on_gpu else ActorPlace(index) for index in range(processes))
    verifiers = tuple(ActorPlace(index % count) for index in range(cluster.verifiers))
    bundles: list[dict[str, float]] = [{"CPU": 0.0, **({"GPU": float(engine_gpus)} if on_gpu else {})} for _ in range(count)]
    for place in (*engines, *learners):
        bundles[place.bundle]["CPU"] += threads
    for place in verifiers:
        bundles[place.bundle]["CPU"] += config.sandbox.workers
    return Placement(tuple(bundles), engines, learners, verifiers)


@dataclass(frozen=True)
class RayCluster:
    """The ``ray`` module, and the placement group of a run."""

    ray: Any
    group: Any
    placement: Placement

    def actor_options(self, place: ActorPlace, cpus: float, gpus: float = 0.0) -> dict[str, Any]:
        """Build the Ray options of an actor. Ray must not restart actors itself: their state would be lost without notice."""
        strategy = import_module("ray.util.scheduling_strategies").PlacementGroupSchedulingStrategy
        bundle = strategy(self.group, placement_group_bundle_index=place.bundle)
        return {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0, "scheduling_strategy": bundle}


@contextmanager
def join_ray(config: Config) -> Iterator[RayCluster]:
    """Join or start Ray and reserve the placement. Raises `ConfigError` if that is impossible; all actors end with the block."""
    ray, placement = import_ray(), place_actors(config)
    _connect(ray, config, placement)
    try:
        check_room(placement, [node["Resources"] for node in ray.nodes() if node["Alive"]])
        group = import_module("ray.util").placement_group([dict(bundle) for bundle in placement.bundles], strategy="PACK")
        if not group.wait(config.cluster.wait_seconds):
            raise ClusterError(
                f"expected room for {placement} within cluster.wait_seconds ({config.cluster.wait_seconds:g}): the cluster has as "
                "much, but in use or not together on its machines. See `ray status`."
            )
        yield RayCluster(ray, group, placement)
        import_module("ray.util").remove_placement_group(group)
    finally:
        ray.shutdown()


def import_ray() -> Any:
    """Import Ray. Raises `ConfigError` if it is not installed."""
    if find_spec("ray") is None:
        raise ConfigError(f"cluster.learners is set: it needs Ray, which is not installed. `{install_extra('cluster')}` installs it.")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # errors of an abandoned update, whose results are dropped
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # a thread that outlives the run would start another Ray
    return import_module("ray")


def _connect(ray: Any, config: Config, placement: Placement) -> None:
    address = config.cluster.address
    options = {"log_to_driver": False, "logging_level": logging.ERROR}
    if not address:
        # Counts of CPUs are for machines that share work. A single machine may run more processes than it has cores, slowly.
        cpus = max(float(os.cpu_count() or 1), placement.total("CPU"))
        try:
            ray.init(address="local", num_cpus=int(cpus), include_dashboard=False, **options)  # also where RAY_ADDRESS names another
        except Exception as error:
            if "timed out during startup" not in str(error):  # Ray has no class for it
                raise
            raise ClusterError(
                "Ray did not start within its 30 seconds: other programs keep this machine busy. Try again later."
            ) from error
        return
    if address != AUTO:
        _check_reachable(address)
    try:
        ray.init(address=address, **options)
    except ray.exceptions.AuthenticationError as error:
        raise ConfigError(
            f"cluster.address is '{address}': its Ray asks for a token. Set RAY_AUTH_MODE=token, and copy ~/.ray/auth_token from the "
            "machine of `ray start --head`."
        ) from error
    except ConnectionError as error:
        raise _unreachable(address, str(error).splitlines()[0]) from error
    except RuntimeError as error:  # another version of Ray or Python
        raise ConfigError(f"cluster.address is '{address}': its Ray cannot be joined from here: {error}") from error


def _check_reachable(address: str) -> None:
    """Try a connection first: Ray itself retries for a minute, and writes into the terminal."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        raise ConfigError(f"cluster.address is '{address}': expected 'host:port', '{AUTO}', or nothing for a Ray of its own")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, str(error)) from error


def _unreachable(address: str, reason: str) -> ConfigError:
    return ConfigError(
        f"cluster.address is '{address}': no Ray is reachable there ({reason}). Start one with `ray start --head`, or leave "
        "cluster.address empty for one of this machine."
    )


def check_room(placement: Placement, machines: Sequence[Mapping[str, float]]) -> None:
    """Raise `ConfigError` if the machines, given by their resources, have too few together, or none can hold some bundle alone."""
    for kind in ("GPU", "CPU"):
        needed, available = placement.total(kind), sum(machine.get(kind, 0.0) for machine in machines)
        if needed > available:
            raise ConfigError(
                f"{placement} need {needed:g} {kind}s, the cluster has {available:g}: ask for fewer (cluster.engines, cluster.learners, "
                "cluster.verifiers, sandbox.workers), or take more or larger machines"
            )
    for bundle in placement.bundles:
        if not any(all(machine.get(kind, 0.0) >= amount for kind, amount in bundle.items()) for machine in machines):
            needed = " and ".join(f"{amount:g} {kind}s" for kind, amount in bundle.items())
            largest = " and ".join(f"{max(machine.get(kind, 0.0) for machine in machines):g} {kind}s" for kind in bundle)
            raise ConfigError(
                f"an engine with the learners and verifiers beside it needs {needed} on one machine, the largest has {largest}: lower "
                "sandbox.workers, threads or engine.tensor_parallel, or take larger machines"
            )
