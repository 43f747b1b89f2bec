"""Shard a base over several processes with FSDP2, for bases that one GPU cannot hold.

FSDP2 shards the frozen layers; adapters, embeddings, norms outside layers and the head are whole in each process. A process maps the base's
files into host memory, which all processes of a machine share, and moves its part to the GPU. Each process computes some of the
micro-batches. All gather a layer at the same time, so all compute equally many, some of them an extra one of weight 0. Gradients and sums
are added over the processes once a step, after which each process makes the same optimiser step.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from populora.core.config import LearnerConfig
from populora.engine.learning.batching import TrainGroup
from populora.engine.learning.learner import InProcessLearner
from populora.engine.model.adapted_model import AdaptedModel


@dataclass(frozen=True)
class Shard:
    """This process's ``rank`` among ``size`` that share a base; they meet at ``address`` (host:port)."""

    rank: int
    size: int
    address: str
    patience: float = 600.0
    """Seconds that a process waits for the others. A supervisor should end all processes as soon as one is lost."""


def shard(model: Any, part: Shard, device: torch.device) -> Any:
    """Join the other processes and move this one's part of every layer of ``model`` to ``device``. The model is a causal LM on the CPU
    (`populora.engine.model.loading.load_base`, ``mapped``)."""
    backend = "gloo" if device.type == "cpu" else "nccl"
    distributed.init_process_group(
        backend, init_method=f"tcp://{part.address}", rank=part.rank, world_size=part.size, timeout=timedelta(seconds=part.patience)
    )
    mesh, backbone = init_device_mesh(device.type, (part.size,)), model.get_decoder()
    whole = set(model.parameters()) - set(backbone.layers.parameters())
    for layer in backbone.layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    # The backbone has no other parameters, but prefetches a layer while the one before it computes.
    fully_shard(backbone, mesh=mesh, ignored_params=whole & set(backbone.parameters()))
    for tensor in (*whole, *model.buffers()):
        tensor.data = tensor.data.to(device)
    return model


class ShardedLearner(InProcessLearner):
    """An `InProcessLearner` in each of the processes, all of which get the same calls."""

    def __init__(self, adapted: AdaptedModel, config: LearnerConfig, part: Shard):
        super().__init__(adapted, config)
        self._part = part

    def accumulate(self, batches: Iterable[Sequence[TrainGroup]], tokens: Mapping[int, float]) -> dict[int, list[float]]:
        """Accumulate the gradients and sums of all processes, as `InProcessLearner.accumulate` does."""
        batches = list(batches)
        rank_batches = batches[self._part.rank :: self._part.size]
        sums = super().accumulate(rank_batches, tokens)
        if len(rank_batches) < math.ceil(len(batches) / self._part.size):
            # The others gather layers once more: join with an update of weight 0.
            super().accumulate(batches[:1], dict.fromkeys(range(self.adapted.bank.slots), math.inf))
        table = torch.tensor([sums[slot] for slot in sorted(sums)], dtype=torch.float64, device=self.adapted.device)
        largest = table[:, -1].clone()
        for slot in sorted(tokens):
            distributed.all_reduce(self.adapted.bank.gradient[slot])
        distributed.all_reduce(table)
        distributed.all_reduce(largest, distributed.ReduceOp.MAX)
        table[:, -1] = largest
        return dict(enumerate(table.tolist()))
