"""Two processes that share one base make the update of one process that has it all."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch
from torch import multiprocessing

from populora.config import BaseConfig, LearnerConfig
from populora.engine.loading import load_base
from populora.learner.batching import TrainRow
from populora.learner.learner import Learner
from populora.learner.sharding import Shard, ShardedLearner, shard
from populora.lora.model import AdaptedModel
from populora.types import Generation

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


def learn(learner: Learner) -> dict[str, torch.Tensor]:
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
    learner.logprobs(0, [ANSWER])  # as the canary asks before the first update
    learner.agreement = float("inf")
    found = learn(learner)
    found["share"] = torch.tensor(sum(part.to_local().numel() for part in adapted.backbone.layers.parameters()) / held)
    torch.save(found, Path(folder) / str(rank))
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", ["none", "layer"])
def test_two_processes_with_half_the_base_each_learn_as_one_with_all_of_it(tmp_path, checkpointing):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    multiprocessing.spawn(process, (address, str(tmp_path), checkpointing), nprocs=SIZE)
    first, second = (torch.load(tmp_path / str(rank)) for rank in range(SIZE))
    share = [float(part.pop("share")) for part in (first, second)]
    assert sum(share) == pytest.approx(1.0) and max(share) < 0.6
    assert all(torch.equal(first[name], second[name]) for name in first)  # adapters are whole in each, and the same
    alone = learn(Learner(made(), CONFIG, agreement=float("inf")))
    for name, value in alone.items():
        if name != "master":
            torch.testing.assert_close(first[name], value, rtol=1e-4, atol=1e-6)
    apart = (first["master"] - alone["master"]).norm(dim=1) / alone["master"].norm(dim=1)
    assert float(apart.max()) < 1e-6
