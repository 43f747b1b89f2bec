"""A run goes back to its newest checkpoint as often as members are lost, and not without end."""

import copy
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_run import SMALL

from populora.core.errors import MembersLost
from populora.core.types import Rating, TaskType
from populora.runs.checkpoint import load_checkpoint
from populora.runs.metrics_log import read_log, write_step
from populora.training import recovery
from populora.training.loop import build_run
from populora.training.population import Population
from populora.training.recovery import MAX_LOSSES, in_spite_of_losses
from populora.training.run import restore, save_run
from populora.training.seed_buffer import fill_buffer


@pytest.fixture(scope="module")
def run():
    with build_run(SMALL) as run:
        fill_buffer(run)
        yield run


@pytest.fixture
def folder(run, tmp_path):
    run.step = 0
    save_run(run, tmp_path / "run")
    return tmp_path / "run"


def test_what_was_lost_is_repeated_from_the_checkpoint(run, folder, make_record, monkeypatch):
    remarks, before, published = [], run.bank.state(), []
    monkeypatch.setattr(run.sampler, "sync_weights", lambda bank, slots: published.extend(slots))

    def step():
        assert published == [*range(run.bank.slots)] * len(remarks)
        run.bank.master += 1.0
        run.step += 1
        write_step(folder, make_record(run.step))
        if not remarks:
            raise MembersLost("learner 1 cannot get its adapters")
        return run.step

    assert in_spite_of_losses(run, folder, remarks.append, Counter(), step) == 1
    assert [line["step"] for line in read_log(folder)] == [1]
    assert remarks == ["learner 1 cannot get its adapters: the run goes back to its checkpoint of step 0"]
    assert bool((run.bank.master == before["master"] + 1.0).all())


def test_a_checkpoint_has_all_that_the_coming_steps_depend_on(run, tmp_path):
    def state():
        archive = {name: np.array(values).tolist() for name, values in run.archives["python"].state().items()}
        return copy.deepcopy((run.step, run.population, run.buffer.state(), run.valid_counts, run.reward_sums, archive)), run.bank.state()

    def move_on(seed):
        generator = torch.Generator().manual_seed(seed)
        for name in ("master", "first_moment", "second_moment"):
            getattr(run.bank, name).copy_(torch.rand(run.bank.master.shape, generator=generator))
        run.bank.steps += seed
        run.step += seed
        run.population = Population(tuple(replace(m, rating=Rating(20.0 + seed, m.slot + 1.0)) for m in run.population.members))
        run.buffer.add(replace(run.buffer.problems(TaskType.CODE_O)[0], id=f"new-{seed}"), f"new-{seed}")
        run.archives["python"].add([(3 + seed, 2, 4, 1)])
        run.valid_counts, run.reward_sums = {"T0": {"code_o": [seed, 9]}}, {"T0": [seed / 3, 9]}

    move_on(1)
    plain, bank = state()
    save_run(run, tmp_path / "run")
    move_on(2)
    assert state()[0] != plain
    restore(run, load_checkpoint(tmp_path / "run"))
    restored, restored_bank = state()
    assert restored == plain and all(torch.equal(tensor, bank[name]) for name, tensor in restored_bank.items())


def test_members_may_be_lost_again_while_the_run_goes_back(run, folder, monkeypatch):
    losses, go_back = iter(["while stepping", "while going back"]), recovery._go_back

    def lose(*_):
        if loss := next(losses, ""):
            raise MembersLost(loss)
        return go_back(run, folder)

    monkeypatch.setattr(recovery, "_go_back", lose)
    remarks = []
    assert in_spite_of_losses(run, folder, remarks.append, Counter(), lambda: lose() or "done") == "done"
    assert [remark.partition(":")[0] for remark in remarks] == ["while stepping", "while going back"]


def test_a_step_that_loses_members_each_time_ends_the_run(run, folder):
    def step():
        raise MembersLost("learner 1 cannot get its adapters")

    losses, remarks = Counter({7: MAX_LOSSES}), []  # those at another checkpoint do not count
    with pytest.raises(MembersLost, match=r"happened 4 times since step 0: .*`populora resume` goes on from that step"):
        in_spite_of_losses(run, folder, remarks.append, losses, step)
    assert len(remarks) == MAX_LOSSES
