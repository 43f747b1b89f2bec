"""One base on several processes: FSDP2 shards its frozen layers, while the adapters are whole in each.

For bases that one GPU cannot hold: a process reads the base into its machine's memory and moves its part of it to the GPU. Each computes
some of the micro-batches; as their layers are gathered by all at the same time, all do equally many, the last ones with an empty one
where they do not come out even. Gradients and sums are added up over the processes once a step, after which each makes the same
optimiser step. Embeddings, norms outside layers and the head stay whole.
"""

from __future__ import annotations

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
from populora.engine.model.model import AdaptedModel


@dataclass(frozen=True)
class Shard:
    """This process's ``rank`` among ``size`` that share a base; they meet at ``address`` (host:port)."""

    rank: int
    size: int
    address: str
    patience: float = 600.0
    """Seconds that a process waits for the others. Whoever watches them ends all as soon as one is lost."""


def shard(model: Any, part: Shard, device: torch.device) -> Any:
    """Join the others and keep this process's part of every layer of ``model``, a causal LM on the CPU, on ``device``; returns it."""
    backend = "gloo" if device.type == "cpu" else "nccl"
    distributed.init_process_group(
        backend, init_method=f"tcp://{part.address}", rank=part.rank, world_size=part.size, timeout=timedelta(seconds=part.patience)
    )
    mesh, backbone = init_device_mesh(device.type, (part.size,)), model.get_decoder()
    whole = set(model.parameters()) - set(backbone.layers.parameters())
    for layer in backbone.layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    # It has nothing of its own, but gathers a layer while the one before it computes.
    fully_shard(backbone, mesh=mesh, ignored_params=whole & set(backbone.parameters()))
    for tensor in (*whole, *model.buffers()):
        tensor.data = tensor.data.to(device)
    return model


class ShardedLearner(InProcessLearner):
    """A `InProcessLearner` in each of the processes, all of which are asked the same."""

    def __init__(self, adapted: AdaptedModel, config: LearnerConfig, part: Shard):
        super().__init__(adapted, config)
        self._part = part

    def accumulate(self, batches: Iterable[Sequence[TrainGroup]], tokens: Mapping[int, float]) -> dict[int, list[float]]:
        """See `InProcessLearner.accumulate`; the gradients and sums are those of all processes."""
        every = list(batches)
        mine = every[self._part.rank :: self._part.size]
        sums = super().accumulate(mine, tokens)
        if len(mine) < math.ceil(len(every) / self._part.size):  # the others gather layers once more: an update of weight 0 beside them
            super().accumulate(every[:1], dict.fromkeys(range(self.adapted.bank.slots), math.inf))
        table = torch.tensor([sums[slot] for slot in sorted(sums)], dtype=torch.float64, device=self.adapted.device)
        largest = table[:, 7].clone()
        distributed.all_reduce(self.adapted.bank.gradient)
        distributed.all_reduce(table)
        distributed.all_reduce(largest, distributed.ReduceOp.MAX)
        table[:, 7] = largest
        return dict(enumerate(table.tolist()))
