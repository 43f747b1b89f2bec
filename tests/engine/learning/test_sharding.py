"""Two processes that share one base make the update of one process that has it all."""

import socket

import pytest
import torch
from forked import start_method
from sharded_learning import CONFIG, SIZE, learn, made, process
from torch import multiprocessing

from populora.engine.learning.learner import InProcessLearner


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", ["none", pytest.param("layer", marks=pytest.mark.thorough)])
def test_two_processes_with_half_the_base_each_learn_as_one_with_all_of_it(tmp_path, checkpointing):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    multiprocessing.start_processes(process, (address, str(tmp_path), checkpointing), nprocs=SIZE, start_method=start_method())
    first, second = (torch.load(tmp_path / str(rank)) for rank in range(SIZE))
    share = [float(part.pop("share")) for part in (first, second)]
    assert sum(share) == pytest.approx(1.0) and max(share) < 0.6
    assert all(torch.equal(first[name], second[name]) for name in first)  # adapters are whole in each, and the same
    alone = learn(InProcessLearner(made(), CONFIG, agreement=float("inf")))
    for name, value in alone.items():
        if name != "master":
            torch.testing.assert_close(first[name], value, rtol=1e-4, atol=1e-6)
    apart = (first["master"] - alone["master"]).norm(dim=1) / alone["master"].norm(dim=1)
    assert float(apart.max()) < 1e-6
