"""Which GPU does what. The place where a cluster's own settings will enter: today every GPU has a learner and a share of an engine."""

from __future__ import annotations

from dataclasses import dataclass

from populora.config import EngineConfig
from populora.errors import ConfigError


@dataclass(frozen=True)
class Placement:
    """``engines`` of ``engine_gpus`` GPUs each, ``learners`` of one; both on the same GPUs. Engines share a step's responses and learners
    its training by tokens, evenly."""

    gpus: int
    engines: int
    engine_gpus: int
    learners: int


def place(engine: EngineConfig, gpus: int, nodes: int = 1) -> Placement:
    """Engines and learners on ``nodes`` machines of ``gpus`` GPUs. Raises `ConfigError` where that cannot be."""
    if gpus < 1 or nodes < 1:
        raise ConfigError(f"expected at least one GPU on at least one node, got {gpus} and {nodes}: set --gpus and --nodes")
    if engine.backend == "inprocess":
        if gpus * nodes > 1:
            raise ConfigError(
                f'engine.backend is "inprocess", one process on one GPU, but {gpus * nodes} were asked for: set engine.backend = "vllm" or '
                "--gpus 1"
            )
        return Placement(1, 1, 1, 1)
    if gpus % engine.tensor_parallel:
        raise ConfigError(
            f"engine.tensor_parallel is {engine.tensor_parallel}: expected a number of GPUs that divides the {gpus} of a node: set "
            "--gpus or lower it"
        )
    everything = gpus * nodes
    return Placement(everything, everything // engine.tensor_parallel, engine.tensor_parallel, everything)
