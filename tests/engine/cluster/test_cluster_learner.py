"""Many learners make the update of one, whoever computes what and dies at which call; and the update is committed all at once."""

import pickle

import pytest
import torch
from local_pool import SETTINGS, SLOTS

from populora.core.errors import AdapterEffectError, ConfigError, MembersLost
from populora.core.files import digest
from populora.core.types import Generation
from populora.engine.cluster.cluster_bank import ClusterBank
from populora.engine.learning.batching import TrainRow
from populora.engine.model.bank import LoraBank

ANSWER = Generation("", (5, 6, 7), (8, 9, 10), (-1.0,) * 3, 0.0, True)


def state_of(bank: ClusterBank | LoraBank) -> dict[str, torch.Tensor]:
    if isinstance(bank, LoraBank):
        return bank.state()
    states = [bank.stored[slot].state.value for slot in range(SLOTS)]
    return {name: torch.cat([state[name] for state in states]) for name in states[0]}


def equal(left, right) -> bool:
    ours, theirs = state_of(left), state_of(right)
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def close(left, right) -> bool:
    """Within a millionth: each moment, and weights by adapter. Single weights need not be: where a gradient is zero but for rounding, Adam
    divides the rounding by itself."""
    ours, theirs = state_of(left), state_of(right)
    moments = all(torch.allclose(ours[name], theirs[name], rtol=0.0, atol=1e-6) for name in ("first_moment", "second_moment"))
    apart = (ours["master"] - theirs["master"]).norm(dim=1) / theirs["master"].norm(dim=1)
    return moments and float(apart.max()) < 1e-6


def helps(learner):
    return [call for call in learner._pool.calls if call.method == "help"]


def test_one_learner_makes_the_bit_identical_update_of_a_run_in_one_process(make_learner, single, uneven_rows):
    learner = make_learner(1)
    for scales in (None, {0: 0.25, 2: 0.5}):
        assert learner.update(uneven_rows, scales) == single.update(uneven_rows, scales)
    assert equal(learner._bank, single.adapted.bank) and not helps(learner)


@pytest.mark.parametrize("members", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(7, marks=pytest.mark.thorough)])
def test_many_learners_make_the_adapters_of_one_within_a_millionth(make_learner, single, uneven_rows, members):
    learner = make_learner(members)
    for step in range(3):
        ours, theirs = learner.update(uneven_rows), single.update(uneven_rows)
        assert len(helps(learner)) > step  # slot 0 has most rows: its owner is helped
        assert [vars(ours[slot]) for slot in ours] == [pytest.approx(vars(theirs[slot]), rel=1e-4, abs=1e-6) for slot in theirs]
    assert close(learner._bank, single.adapted.bank)


def test_no_gradient_travels_when_loads_are_even(make_learner):
    rows = [TrainRow(slot, [5, 6, 7], [8, 9, 10], [-5.0] * 3, 1.0 - 2 * (number % 2)) for slot in range(4) for number in range(4)]
    learner = make_learner(2)
    learner.update(rows)
    assert not helps(learner)


@pytest.mark.thorough
def test_whichever_call_a_learner_dies_at_the_adapters_are_those_of_the_undisturbed_update(make_learner, uneven_rows):
    undisturbed = make_learner(2)
    expected = [undisturbed.update(uneven_rows) for _ in range(2)]
    calls = len(undisturbed._pool.calls)
    assert calls >= 12
    for dies in [*range(1, calls + 1), *range(-calls, 0)]:
        learner = make_learner(2, [dies])
        assert [learner.update(uneven_rows) for _ in range(2)] == expected, dies
        assert equal(learner._bank, undisturbed._bank) and learner._pool.faults >= 1, dies


@pytest.mark.slow
def test_a_second_death_during_recovery_changes_nothing_either(make_learner, uneven_rows):
    undisturbed = make_learner(2)
    undisturbed.update(uneven_rows)
    faults = []
    for dies in ([4, 5], [4, 8], [-6, 9, 15], [3, -7, 11]):
        learner = make_learner(2, dies)
        learner.update(uneven_rows)
        assert equal(learner._bank, undisturbed._bank)
        faults.append(learner._pool.faults)
    assert min(faults) >= 1 and max(faults) >= 2


def test_a_gradient_that_is_gone_with_its_machine_is_computed_again(make_learner, uneven_rows):
    undisturbed = make_learner(2)
    expected = undisturbed.update(uneven_rows)
    (help_call, *_) = [number for number, call in enumerate(undisturbed._pool.calls, start=1) if call.method == "help"]
    learner = make_learner(2, gone=[help_call])
    members = list(learner._pool.members)
    assert learner.update(uneven_rows) == expected and equal(learner._bank, undisturbed._bank)
    assert learner._pool.faults == 1 and learner._pool.members == members, "nobody was replaced"


def test_adapters_that_are_gone_with_their_machine_are_lost(make_learner, uneven_rows):
    undisturbed = make_learner(2)
    undisturbed.update(uneven_rows)
    (step, *_) = [number for number, call in enumerate(undisturbed._pool.calls, start=1) if call.method == "step"]
    learner = make_learner(2, gone=[step])
    learner.update(uneven_rows)
    with pytest.raises(MembersLost):
        learner._bank.basis_cosine([0, 2])


def test_a_guard_that_refuses_one_slot_leaves_all_adapters_as_they_were(make_learner, uneven_rows):
    learner = make_learner(2, agreement=1e-5)
    before = state_of(learner._bank)
    with pytest.raises(AdapterEffectError, match="sampler and learner must agree"):
        learner.update(uneven_rows)
    assert all(torch.equal(before[name], after) for name, after in state_of(learner._bank).items())


def test_a_row_over_the_token_budget_is_refused_before_any_call(make_learner):
    learner = make_learner(2)
    with pytest.raises(ConfigError, match=r"learner\.micro_batch_tokens is 256, smaller than one row of 299 tokens"):
        learner.update([TrainRow(0, [5] * 200, [6] * 100, [-5.0] * 100, 1.0)])
    assert not learner._pool.calls


@pytest.mark.slow
def test_an_adapter_that_was_bred_reaches_its_learner(make_learner, single, uneven_rows):
    learner = make_learner(2)
    learner.update(uneven_rows)
    single.update(uneven_rows)
    learner._bank.load(3, learner._bank.adapter(0))
    single.adapted.bank.load(3, single.adapted.bank.adapter(0))
    answers = {3: [ANSWER]}
    torch.testing.assert_close(learner.logprobs(answers)[3], single.logprobs(answers)[3], rtol=0.0, atol=1e-5)
    learner.update(uneven_rows)
    single.update(uneven_rows)
    assert close(learner._bank, single.adapted.bank)


def test_three_learners_go_on_from_the_files_of_two(make_learner, uneven_rows, tmp_path):
    two, three, names = make_learner(2), make_learner(3), {f"M{slot}": slot for slot in range(SLOTS)}
    two.update(uneven_rows)
    assert not close(two._bank, three._bank)
    two._bank.write_adapters(tmp_path / "adapters", names, "tiny", SETTINGS.lora.targets)
    two._bank.write_optimiser(tmp_path / "optimiser", names)
    digests = {path: digest(path.read_bytes()) for path in tmp_path.rglob("*.*")}
    three._bank.read(tmp_path / "adapters", tmp_path / "optimiser", names, digests)
    assert equal(two._bank, three._bank)
    two.update(uneven_rows)
    three.update(uneven_rows)
    assert close(two._bank, three._bank)


@pytest.mark.parametrize("dies", [(), (2,), (-1,)])
def test_log_probabilities_of_all_slots_take_one_call_of_each_learner(make_learner, single, dies):
    learner, answers = make_learner(2, dies), {slot: [ANSWER] * (1 + slot) for slot in range(SLOTS)}
    ours, theirs = learner.logprobs(answers), single.logprobs(answers)
    assert [call.index for call in learner._pool.calls if call.method == "logprobs"] == [0, 1] * (1 + learner._pool.faults)
    assert learner._pool.faults == len(dies)
    for slot in answers:
        torch.testing.assert_close(ours[slot], theirs[slot], rtol=0.0, atol=1e-5)
        assert ours[slot].shape == (2, 3 * (1 + slot)) and not torch.equal(*ours[slot])


def test_a_learner_computes_no_log_probabilities_of_a_slot_that_is_not_its_own(make_actor):
    with pytest.raises(KeyError):
        make_actor([0, 1]).logprobs({4: [ANSWER]})


def test_any_learner_computes_log_probabilities_of_the_bare_base(make_learner, single):
    learner, answers = make_learner(2), {-1: [ANSWER] * 2}
    (ours, again), (theirs, _) = learner.logprobs(answers)[-1], single.logprobs(answers)[-1]
    torch.testing.assert_close(ours, theirs)
    assert torch.equal(ours, again)
    assert len(learner._pool.calls) == 1 and learner.logprobs({}) == {}


def test_a_helper_sends_one_gradient_and_not_those_of_its_own_slots(make_actor, single, uneven_rows):
    actor = make_actor(range(1, SLOTS))
    _, gradient = actor.help(single.adapted.bank.adapter(0), [row for row in uneven_rows if row.slot == 0], 1000, 1e-5)
    size = single.adapted.bank.master.shape[1]
    assert gradient.shape == (size,) and len(pickle.dumps(gradient)) < 4 * size + 1000
