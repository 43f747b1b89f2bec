"""GPUs: data sheet figures, and how many of them a run uses.

Peaks are for dense bf16 products with fp32 accumulation (data sheets print twice as much, with sparsity). Memory is nominal, GB of 10^9
bytes: drivers report up to a tenth more.
"""

import re
from dataclasses import dataclass, replace

from populora.core.config import ClusterConfig, Config
from populora.core.errors import ConfigError, did_you_mean

CPU = "cpu"
"""Name of the processor, which is measured (`populora.engine.sampling.cpu_speed`) because it has no usable data sheet."""


@dataclass(frozen=True)
class Hardware:
    """One GPU, or the CPU cores of a machine. Memory is in 10^9 bytes, matrix products in 10^12 FLOP/s."""

    name: str
    teraflops: float
    gigabytes_per_second: float
    gigabytes: float
    source: str

    @property
    def bytes(self) -> float:
        return self.gigabytes * 1e9


GPUS = (
    Hardware("h100-80gb", 989.0, 3350.0, 80.0, "NVIDIA H100 data sheet, SXM"),
    Hardware("h200-141gb", 989.0, 4800.0, 141.0, "NVIDIA H200 data sheet, SXM"),
    Hardware("a100-80gb", 312.0, 2039.0, 80.0, "NVIDIA A100 data sheet, SXM"),
    Hardware("a100-40gb", 312.0, 1555.0, 40.0, "NVIDIA A100 data sheet, SXM"),
    Hardware("l40s-48gb", 362.0, 864.0, 48.0, "NVIDIA L40S data sheet"),
    Hardware("rtx4090-24gb", 165.2, 1008.0, 24.0, "NVIDIA Ada GPU architecture white paper"),
)


def find_gpu(name: str) -> Hardware:
    """Return the GPU with this name, or the one whose name begins so (``H100``). Raises `ConfigError` listing the supported names."""
    gpus = [gpu for gpu in GPUS if gpu.name.startswith(name.lower())]
    if len(gpus) != 1:
        names = [gpu.name for gpu in gpus or GPUS]
        problem, guess = ("ambiguous", "") if gpus else ("unknown", did_you_mean(name, names))
        raise ConfigError(f"{problem} GPU '{name}': expected {CPU} or one of {', '.join(names)}.{guess}")
    return gpus[0]


def parse_gpus(text: str, gpu: str = "") -> tuple[int, str]:
    """Read ``--gpus``, a number of GPUs that may have their name with it (``8``, ``8xH100``), beside ``--gpu``. Returns number and name.
    Empty texts are 0 GPUs and no name. Raises `ConfigError`, also if both name the GPU."""
    number = re.fullmatch(r"(\d+)(?:x(\S+))?", text.lower())
    if text and not (number and (int(number[1]) or not number[2])):
        raise ConfigError(f"--gpus: expected a number of GPUs, such as 8 or 8xH100, got '{text}'")
    if gpu and number and number[2]:
        raise ConfigError(f"--gpu {gpu} and --gpus {text} both name the GPU: leave out one of them")
    return (int(number[1]), gpu.lower() or number[2] or "") if number else (0, gpu.lower())


def count_idle_gpus(config: Config, gpus: int = 0, nodes: int = 1) -> int:
    """Count the GPUs of ``nodes`` machines with ``gpus`` GPUs (0: as many as needed) that the settings do not use. Every used GPU has one
    learner, or a shard of one, and a share of an engine. Raises `ConfigError` if there are too few."""
    if gpus < 0 or nodes < 1:
        raise ConfigError(f"expected at least one GPU on at least one node, got {gpus} and {nodes}: set --gpus and --nodes")
    if nodes > 1 and not gpus:
        raise ConfigError(f"--nodes {nodes}: expected --gpus with it, the GPUs of each node")
    engines, engine_gpus = config.cluster.engines, config.engine.tensor_parallel
    used = engines * engine_gpus
    if gpus and gpus // engine_gpus * nodes < engines:
        settings = "cluster.engines and cluster.learners" if config.cluster.learners else "engine.tensor_parallel"
        raise ConfigError(
            f"expected {used} GPUs, those of an engine on one node ({engines} engines x engine.tensor_parallel {engine_gpus}), got --gpus "
            f"{gpus} --nodes {nodes}: give more, or lower {settings}"
        )
    return gpus * nodes - used if gpus else 0


def fill_gpus(config: Config, gpus: int, nodes: int = 1) -> Config:
    """Add cluster settings that use ``nodes`` machines of ``gpus`` GPUs, unless ``config`` has some or one engine uses them all."""
    engine_gpus = config.engine.tensor_parallel
    engines = gpus // engine_gpus * nodes
    if config.cluster.learners or engines < 2:
        return config
    selfplay = config.selfplay
    if selfplay.overlap == "reproducible":  # not possible on a cluster
        selfplay = replace(selfplay, overlap="eager")
    return replace(config, cluster=ClusterConfig(learners=engines * engine_gpus, engines=engines), selfplay=selfplay)


def cluster_settings(config: Config) -> str:
    """Format the settings that `fill_gpus` sets as one would type them."""
    cluster = config.cluster
    return f'cluster.learners = {cluster.learners}, cluster.engines = {cluster.engines}, selfplay.overlap = "{config.selfplay.overlap}"'
