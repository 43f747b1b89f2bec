"""Which GPU does what, by a configuration's cluster settings: every GPU that is used has a learner, or a part of one, and a share of an
engine."""

from __future__ import annotations

from dataclasses import dataclass, replace

from populora.core.config import ClusterConfig, Config
from populora.core.errors import ConfigError


@dataclass(frozen=True)
class Placement:
    """``engines`` of ``engine_gpus`` GPUs each and ``learners`` of ``learner_gpus``, on the same ``gpus``; ``idle`` are the other GPUs that
    there are. Engines share a step's responses and learners its training by tokens, evenly. On a processor a GPU is one process's cores."""

    gpus: int
    engines: int
    engine_gpus: int
    learners: int
    learner_gpus: int
    idle: int


def place(config: Config, gpus: int = 0, nodes: int = 1) -> Placement:
    """What a run of ``config`` uses of ``nodes`` machines of ``gpus`` GPUs; 0 ``gpus`` are as many as it uses. Without cluster settings
    that is one engine and one learner. Raises `ConfigError` where they are too few."""
    if gpus < 0 or nodes < 1:
        raise ConfigError(f"expected at least one GPU on at least one node, got {gpus} and {nodes}: set --gpus and --nodes")
    if nodes > 1 and not gpus:
        raise ConfigError(f"--nodes {nodes}: expected --gpus with it, the GPUs of each node")
    cluster, each = config.cluster, config.engine.tensor_parallel
    engines, learners = (cluster.engines, cluster.learners) if cluster.learners else (1, 1)
    used = engines * each
    if gpus and gpus // each * nodes < engines:
        settings = "cluster.engines and cluster.learners" if cluster.learners else "engine.tensor_parallel"
        raise ConfigError(
            f"expected {used} GPUs, those of an engine on one node ({engines} engines x engine.tensor_parallel {each}), got --gpus {gpus} "
            f"--nodes {nodes}: give more, or lower {settings}"
        )
    return Placement(used, engines, each, learners, cluster.shards, (gpus * nodes or used) - used)


def spread(config: Config, gpus: int, nodes: int = 1) -> Config:
    """A configuration without cluster settings with those that use ``nodes`` machines of ``gpus`` GPUs, if these are more than one engine
    has; any other as it is."""
    each = config.engine.tensor_parallel
    engines = gpus // each * nodes
    if config.cluster.learners or engines < 2:
        return config
    play = config.selfplay
    play = replace(play, overlap="eager") if play.overlap == "reproducible" else play  # which a cluster cannot be
    return replace(config, cluster=ClusterConfig(learners=engines * each, engines=engines), selfplay=play)


def spread_settings(config: Config) -> str:
    """What `spread` set, as one would type it."""
    cluster = config.cluster
    return f'cluster.learners = {cluster.learners}, cluster.engines = {cluster.engines}, selfplay.overlap = "{config.selfplay.overlap}"'
