"""Processes that share a base, 8 and 64 of them, each simulated alone by torch's fake process group: they call one another equally often.

A process that gathers a layer once less than the others would hang them all. What the processes compute is `test_sharding.py`.
"""

from collections import Counter
from typing import Any

import pytest
import torch
from small_models import random_qwen2, random_rows, randomise
from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from populora.core.config import LearnerConfig
from populora.engine.learning.batching import micro_batches
from populora.engine.learning.sharding import Shard, ShardedLearner, shard
from populora.engine.model.adapted_model import AdaptedModel

SLOTS, BUDGET = 3, 150
ROWS = random_rows(0, {0: 4, 1: 5, 2: 3}, 20)


class Collectives(TorchDispatchMode):
    """Counts the calls of other processes while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func.namespace == "c10d":
            self.calls[func.name()] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture
def join(monkeypatch):
    """Let a process join any number of others that are not there."""
    start = distributed.init_process_group

    def pretend(backend: str, rank: int, world_size: int, **_: Any) -> None:
        start("fake", store=FakeStore(), rank=rank, world_size=world_size)

    monkeypatch.setattr(distributed, "init_process_group", pretend)
    monkeypatch.setattr(AdaptedModel, "_check_base", lambda *_: None)  # nobody sends this process the rest of its layers
    yield lambda rank, size: shard(random_qwen2(), Shard(rank, size, ""), torch.device("cpu"))
    if distributed.is_initialized():
        distributed.destroy_process_group()


def update_calls(join, rank: int, size: int) -> tuple[Counter[str], float]:
    """Return the calls of one update, and the share of the layers that the process holds."""
    adapted = randomise(AdaptedModel(join(rank, size), ("q_proj", "v_proj"), SLOTS, 4, 8.0))
    weights = list(adapted.backbone.layers.parameters())
    share = sum(weight.to_local().numel() for weight in weights) / sum(weight.numel() for weight in weights)
    learner = ShardedLearner(adapted, LearnerConfig(micro_batch_tokens=BUDGET), Shard(rank, size, ""))
    with Collectives() as collectives:
        learner.accumulate(micro_batches(ROWS, BUDGET), dict.fromkeys(range(SLOTS), 10))
    distributed.destroy_process_group()
    return collectives.calls, share


@pytest.mark.parametrize("size", [8, 64])
def test_all_processes_call_one_another_equally_often(join, size):
    batches = len(list(micro_batches(ROWS, BUDGET)))
    assert batches % size  # some have one micro-batch less than others, or none
    first, share = update_calls(join, 0, size)
    assert first["c10d::allreduce_"] == 2 + SLOTS and first["c10d::_allgather_base_"] > 0 and share < 2.5 / size
    for rank in (1, batches % size, size - 1):
        assert update_calls(join, rank, size)[0] == first
