"""Learners on a CUDA device that is not there: everything they return is on the CPU, and the update is that of one process."""

import pytest
import torch
from local_pool import SETTINGS
from pretended_cuda import PretendedCuda, without_compiler

from populora.core.types import Generation, Lineage
from populora.engine.bank import Birth
from populora.engine.cluster.learner_actor import LearnerActor

ANSWER = Generation("", (5, 6, 7), (8, 9, 10), (-1.0,) * 3, 0.0, True)
BIRTH = Birth(3, (0, 1), ("T0#0", "T1#0"), Lineage("S1", 1, 10, "x1", stream=("evolve", 10, "S1"), refactor="revive", seed=3))
NAMES = {"S0": 2}
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@pytest.fixture
def pretended(monkeypatch) -> PretendedCuda:
    without_compiler(monkeypatch)
    return PretendedCuda()


@pytest.mark.slow
def test_learners_return_nothing_that_is_on_their_device(pretended, make_learner, single, uneven_rows, tmp_path):
    with pretended:
        learner = make_learner(2, device="cuda")
        updates = learner.update(uneven_rows)
        logprobs, adapter = learner.logprobs({1: [ANSWER]})[1], learner._bank.adapter(1)
        learner._bank.load(4, adapter)
        learner._bank.breed([BIRTH])
        learner._bank.basis_cosine([0, 3])
        learner._bank.write_adapters(tmp_path, NAMES, "tiny", SETTINGS.lora.targets)
        learner._bank.write_optimiser(tmp_path, NAMES)
    expected = single.update(uneven_rows)
    assert {call.method for call in learner._pool.calls} >= {"help", "learn", "add", "step", "logprobs", "put", "load", "breed"}
    assert [vars(updates[slot]) for slot in updates] == [pytest.approx(vars(expected[slot]), rel=1e-3, abs=1e-5) for slot in expected]
    torch.testing.assert_close(logprobs, single.logprobs({1: [ANSWER]})[1], rtol=0.0, atol=1e-3)


def test_a_learner_that_returns_a_tensor_of_its_device_is_noticed(pretended, make_learner, monkeypatch):
    monkeypatch.setattr(LearnerActor, "logprobs", lambda actor, answers: {slot: actor._bank.master[slot] for slot in answers})
    with pretended, pytest.raises(AssertionError, match=r"pickles a CUDA tensor of shape \(\d+,\)"):
        make_learner(1, device="cuda").logprobs({1: [ANSWER]})


def test_whether_an_adapter_is_untrained_is_read_back_once(pretended, make_actor):
    with pretended:
        bank = make_actor([0, 1], "cuda")._bank
        bank.initialise(0)
        pretended.waits.clear()
        assert bank.untrained(0)
        bank.factors[next(reversed(bank.factors))][1][0, -1, -1] = 1.0
        assert not bank.untrained(0) and bank.untrained(1)
    assert pretended.waits.total() == 3
