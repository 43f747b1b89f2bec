"""What the processes of `test_sharding.py` do; a module by itself, because they import it."""

from __future__ import annotations

from pathlib import Path

import torch

from populora.core.config import BaseConfig, LearnerConfig
from populora.core.types import Generation
from populora.engine.learning.batching import TrainRow
from populora.engine.learning.learner import InProcessLearner
from populora.engine.learning.sharding import Shard, ShardedLearner, shard
from populora.engine.model.loading import load_base
from populora.engine.model.model import AdaptedModel

SIZE, SLOTS = 2, 3
CONFIG = LearnerConfig(micro_batch_tokens=96)
ANSWER = Generation("", (5, 6, 7), (8, 9, 10), (-1.0,) * 3, 0.0, True)


def made(checkpointing: str = "none", part: Shard | None = None) -> AdaptedModel:
    model = load_base(BaseConfig())[0]
    if part:
        model = shard(model, part, torch.device("cpu"))
    adapted = AdaptedModel(model, ("q_proj", "k_proj", "v_proj", "o_proj", "down_proj"), SLOTS, 4, 8.0, checkpointing)
    adapted.bank.initialise(0)
    adapted.bank.master += 0.02 * torch.randn(adapted.bank.master.shape, generator=torch.Generator().manual_seed(3))
    return adapted


def rows(count: int) -> list[TrainRow]:
    draw = torch.Generator().manual_seed(count)

    def tokens(least: int, most: int) -> list[int]:
        length = int(torch.randint(least, most, (1,), generator=draw))
        return torch.randint(2, 200, (length,), generator=draw).tolist()

    return [
        TrainRow(index % SLOTS, tokens(4, 30), (response := tokens(2, 40)), [-5.0] * len(response), float(index % 2) - 0.4)
        for index in range(count)
    ]


def learn(learner: InProcessLearner) -> dict[str, torch.Tensor]:
    """Two updates: of batches that come out even and of one that leaves a process without any."""
    updates = [learner.update(rows(count)) for count in (12, 1)]
    losses = torch.tensor([[update.loss, update.grad_norm, update.max_difference] for one in updates for update in one.values()])
    return {**learner.adapted.bank.state(), "losses": losses, "logprobs": learner.logprobs(1, [ANSWER])}


def process(rank: int, address: str, folder: str, checkpointing: str) -> None:
    torch.set_num_threads(1)
    part = Shard(rank, SIZE, address, patience=60.0)
    adapted = made(checkpointing, part)
    held = sum(parameter.numel() for parameter in adapted.backbone.layers.parameters())
    learner = ShardedLearner(adapted, CONFIG, part)
    learner.logprobs(0, [ANSWER])  # as the check of adapters does before the first update
    learner.agreement = float("inf")
    found = learn(learner)
    found["share"] = torch.tensor(sum(part.to_local().numel() for part in adapted.backbone.layers.parameters()) / held)
    torch.save(found, Path(folder) / str(rank))
    torch.distributed.destroy_process_group()
