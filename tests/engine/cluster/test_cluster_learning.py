"""Many learners make the update of one, whoever computes what and whoever dies at which call; and nothing counts before all of it does."""

import math
import pickle
import threading
import time

import pytest
import torch
from local_crew import SETTINGS, SLOTS, LocalCrew, stirred

from populora.core.errors import AdapterEffectError, ConfigError
from populora.core.types import Generation
from populora.engine.cluster.balance import owners_of
from populora.engine.cluster.learner_actor import AbortedError
from populora.engine.cluster.learning import ClusterLearner
from populora.engine.learning.batching import TrainRow
from populora.engine.model.bank import LoraBank


@pytest.fixture
def make_learner(make_host, alone):
    def make(members: int, dies=(), agreement: float = math.inf) -> ClusterLearner:
        owners = owners_of(SLOTS, members)
        crew = LocalCrew(lambda index: make_host([slot for slot, owner in owners.items() if owner == index]), members, dies)
        bank = LoraBank(alone.adapted.bank.layout, SLOTS, SETTINGS.lora.rank, SETTINGS.lora.alpha)
        stirred(bank)
        return ClusterLearner(SETTINGS, crew, bank, agreement, [host.described for host in crew.hosts])

    return make


def equal(left: LoraBank, right: LoraBank) -> bool:
    mine, other = left.state(), right.state()
    return all(torch.equal(mine[name], other[name]) for name in mine)


def close(left: LoraBank, right: LoraBank) -> bool:
    """Within a millionth: moments each, weights by adapter. Single weights need not be: where a gradient is zero but for rounding, Adam
    divides the rounding by itself."""
    mine, other = left.state(), right.state()
    moments = all(torch.allclose(mine[name], other[name], rtol=0.0, atol=1e-6) for name in ("first_moment", "second_moment"))
    apart = (mine["master"] - other["master"]).norm(dim=1) / other["master"].norm(dim=1)
    return moments and float(apart.max()) < 1e-6


def test_one_learner_makes_the_update_of_a_run_in_one_process_to_the_byte(make_learner, alone, uneven_rows):
    learner = make_learner(1)
    assert learner.update(uneven_rows) == alone.update(uneven_rows)
    assert equal(learner._bank, alone.adapted.bank) and learner.helps == 0


@pytest.mark.parametrize("members", [2, 3, 7])
def test_many_learners_make_the_adapters_of_one_within_a_millionth(make_learner, alone, uneven_rows, members):
    learner = make_learner(members)
    for _ in range(3):
        ours, theirs = learner.update(uneven_rows), alone.update(uneven_rows)
        assert learner.helps > 0  # slot 0 has most rows: its owner is helped
        assert [vars(ours[slot]) for slot in ours] == [pytest.approx(vars(theirs[slot]), rel=1e-4, abs=1e-6) for slot in theirs]
    assert close(learner._bank, alone.adapted.bank)


def test_no_gradient_travels_when_loads_are_even(make_learner):
    rows = [TrainRow(slot, [5, 6, 7], [8, 9, 10], [-5.0] * 3, 1.0 - 2 * (number % 2)) for slot in range(4) for number in range(4)]
    learner = make_learner(2)
    learner.update(rows)
    assert learner.helps == 0 and not [call for call in learner._crew.asked if call.method == "help"]


@pytest.mark.slow
def test_whichever_call_a_learner_dies_at_the_adapters_are_those_of_the_undisturbed_update(make_learner, uneven_rows):
    undisturbed = make_learner(2)
    expected = [undisturbed.update(uneven_rows) for _ in range(2)]
    calls = undisturbed._crew.calls
    assert calls >= 16
    for dies in [*range(1, calls + 1), *range(-calls, 0)]:
        learner = make_learner(2, [dies])
        assert [learner.update(uneven_rows) for _ in range(2)] == expected, dies
        assert equal(learner._bank, undisturbed._bank) and learner._crew.faults >= 1, dies


def test_a_second_death_while_the_first_is_repaired_changes_nothing_either(make_learner, uneven_rows):
    undisturbed = make_learner(2)
    undisturbed.update(uneven_rows)
    faults = []
    for dies in ([4, 5], [4, 8], [-6, 9, 15], [3, -7, 11]):
        learner = make_learner(2, dies)
        learner.update(uneven_rows)
        assert equal(learner._bank, undisturbed._bank)
        faults.append(learner._crew.faults)
    assert min(faults) >= 1 and max(faults) >= 2


def test_a_guard_that_refuses_one_slot_leaves_all_adapters_as_they_were(make_learner, uneven_rows):
    learner = make_learner(2, agreement=1e-5)
    before = learner._bank.state()
    with pytest.raises(AdapterEffectError, match="sampler and learner must agree"):
        learner.update(uneven_rows)
    assert all(torch.equal(before[name], after) for name, after in learner._bank.state().items())


def test_a_row_over_the_token_budget_is_refused_before_anything_is_asked(make_learner):
    learner = make_learner(2)
    with pytest.raises(ConfigError, match=r"learner\.micro_batch_tokens is 256"):
        learner.update([TrainRow(0, [5] * 200, [6] * 100, [-5.0] * 100, 1.0)])
    assert not learner._crew.asked


def test_an_adapter_that_was_bred_reaches_its_learner_without_being_told(make_learner, alone, uneven_rows):
    learner = make_learner(2)
    learner.update(uneven_rows)
    alone.update(uneven_rows)
    child = learner._bank.adapter(0)
    learner._bank.load(3, child)
    alone.adapted.bank.load(3, alone.adapted.bank.adapter(0))
    answer = Generation("", (5, 6, 7), (8, 9, 10), (-1.0,) * 3, 0.0, True)
    torch.testing.assert_close(learner.logprobs(3, [answer]), alone.logprobs(3, [answer]), rtol=0.0, atol=1e-5)
    torch.testing.assert_close(learner.logprobs(-1, [answer]), alone.logprobs(-1, [answer]))
    learner.update(uneven_rows)
    alone.update(uneven_rows)
    assert close(learner._bank, alone.adapted.bank)


def test_an_update_that_is_not_wanted_any_more_ends_at_the_next_micro_batch(make_host, uneven_rows):
    host = make_host(range(SLOTS))
    tokens = dict.fromkeys(range(SLOTS), 100)
    threading.Timer(0.3, host.abort).start()
    started = time.perf_counter()
    with pytest.raises(AbortedError):
        host.learn(uneven_rows * 100, tokens)
    assert time.perf_counter() - started < 10.0  # all of it takes longer
    with pytest.raises(AbortedError):
        host.learn(uneven_rows, tokens)
    host.settle()
    assert set(host.learn(uneven_rows, tokens)) == set(range(SLOTS))


def test_a_helper_sends_one_gradient_and_not_those_of_its_own_slots(make_host, alone, uneven_rows):
    host = make_host(range(1, SLOTS))
    _, gradient = host.help(alone.adapted.bank.adapter(0), [row for row in uneven_rows if row.slot == 0], 1000)
    size = alone.adapted.bank.master.shape[1]
    assert gradient.shape == (size,) and len(pickle.dumps(gradient)) < 4 * size + 1000
