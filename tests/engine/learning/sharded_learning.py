"""What the processes of `test_sharding.py` do; a module by itself, because they import it."""

from pathlib import Path

import torch
from small_models import random_rows, randomise

from populora.core.config import BaseConfig, LearnerConfig
from populora.core.types import Generation
from populora.engine.learning.learner import InProcessLearner
from populora.engine.learning.sharding import Shard, ShardedLearner, shard
from populora.engine.model.adapted_model import AdaptedModel
from populora.engine.model.loading import load_base

SIZE, SLOTS = 2, 3
CONFIG = LearnerConfig(micro_batch_tokens=96, base_kl=0.05)
ANSWER = Generation("", (5, 6, 7), (8, 9, 10), (-1.0,) * 3, 0.0, True)


def made(checkpointing: str = "none", part: Shard | None = None) -> AdaptedModel:
    model = load_base(BaseConfig())[0]
    if part:
        model = shard(model, part, torch.device("cpu"))
    return randomise(AdaptedModel(model, ("q_proj", "k_proj", "v_proj", "o_proj", "down_proj"), SLOTS, 4, 8.0, checkpointing), 0.02)


def learn(learner: InProcessLearner) -> dict[str, torch.Tensor]:
    """Two updates: of batches that come out even and of one that leaves a process without any."""
    rows = random_rows(0, dict.fromkeys(range(SLOTS), 2), longest=40)
    updates = [update for some in (rows[:12], rows[12:13]) for update in learner.update(some).values()]
    losses = torch.tensor([[update.loss, update.grad_norm, update.max_difference] for update in updates])
    return {**learner.adapted.bank.state(), "losses": losses, "logprobs": learner.logprobs({1: [ANSWER]})[1]}


def process(rank: int, address: str, folder: str, checkpointing: str) -> None:
    torch.set_num_threads(1)
    part = Shard(rank, SIZE, address, patience=60.0)
    adapted = made(checkpointing, part)
    held = sum(parameter.numel() for parameter in adapted.backbone.layers.parameters())
    learner = ShardedLearner(adapted, CONFIG, part)
    learner.logprobs({0: [ANSWER]})  # as the check of adapters does before the first update
    learner.agreement = float("inf")
    results = learn(learner)
    results["share"] = torch.tensor(sum(part.to_local().numel() for part in adapted.backbone.layers.parameters()) / held)
    torch.save(results, Path(folder) / str(rank))
    torch.distributed.destroy_process_group()
