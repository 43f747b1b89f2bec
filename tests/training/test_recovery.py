"""A run goes back to its newest checkpoint as often as members are lost, and not without end."""

from collections import Counter

import pytest
from small_run import SMALL

from populora.core.errors import MembersLost
from populora.training import recovery
from populora.training.loop import build_run
from populora.training.recovery import MAX_LOSSES, in_spite_of_losses
from populora.training.run import save_run
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


def test_what_was_lost_is_repeated_from_the_checkpoint(run, folder):
    remarks, before = [], run.bank.state()

    def step():
        run.bank.master += 1.0
        run.step += 1
        if not remarks:
            raise MembersLost("learner 1 cannot get its adapters")
        return run.step

    assert in_spite_of_losses(run, folder, remarks.append, Counter(), step) == 1
    assert remarks == ["learner 1 cannot get its adapters: the run goes back to its checkpoint of step 0"]
    assert bool((run.bank.master == before["master"] + 1.0).all())


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
