"""The stacked bank: shared initialisation, one row per member, and states that come back to the bit."""

import dataclasses
import pickle

import pytest
import torch

from populora.adapters.adapter import Adapter
from populora.core.config import LearnerConfig
from populora.core.errors import AdapterError
from populora.engine.learning.learner import adamw_step
from populora.engine.model.bank import LoraBank

FAMILIES = ({"layers.0.q_proj": (8, 12), "layers.0.k_proj": (8, 4)}, {"layers.0.o_proj": (12, 8)})
MODULES = {name: shape for family in FAMILIES for name, shape in family.items()}


def filled_bank(slots: int = 3, rank: int = 4) -> LoraBank:
    bank = LoraBank(FAMILIES, slots, rank, 8.0)
    bank.initialise(0)
    generator = torch.Generator().manual_seed(1)
    for tensor in (bank.master, bank.first_moment, bank.second_moment):
        tensor.add_(torch.randn(tensor.shape, generator=generator))
    bank.steps[:] = torch.arange(1, slots + 1)
    return bank


def test_every_slot_starts_with_the_same_a_and_zero_b():
    bank = LoraBank(FAMILIES, 3, 4, 8.0)
    bank.initialise(5)
    for name, (inner, outer) in MODULES.items():
        a, b = bank.factors[name]
        assert a.shape == (3, 4, inner)
        assert b.shape == (3, outer, 4)
        assert (a == a[:1]).all()
        assert 0.5 / inner**0.5 < float(a.abs().max()) <= 1.0 / inner**0.5
        assert not b.any()
    assert bank.untrained(0)
    assert bank.adapter(0).fingerprint() == bank.adapter(2).fingerprint()


def test_another_seed_gives_another_a_and_the_same_seed_the_same():
    prints = []
    for seed in (5, 5, 6):
        bank = LoraBank(FAMILIES, 1, 4, 8.0)
        bank.initialise(seed)
        prints.append(bank.adapter(0).fingerprint())
    assert prints[0] == prints[1] != prints[2]


def test_loading_touches_one_row_and_clears_its_optimiser_state():
    bank, before = filled_bank(), filled_bank()
    bank.load(1, before.adapter(2))
    assert bank.adapter(1).fingerprint() == before.adapter(2).fingerprint()
    assert int(bank.steps[1]) == 0
    assert not bank.first_moment[1].any()
    assert not bank.second_moment[1].any()
    for slot in (0, 2):
        assert torch.equal(bank.master[slot], before.master[slot])
        assert torch.equal(bank.first_moment[slot], before.first_moment[slot])
        assert int(bank.steps[slot]) == slot + 1


def broken_adapters(good: Adapter) -> dict[str, Adapter]:
    name = "layers.0.q_proj"
    a, b = good.modules[name]
    return {
        "rank 5": dataclasses.replace(good, rank=5),
        r"expected A \(2, 8\)": dataclasses.replace(good, rank=2),
        "layers.9": dataclasses.replace(good, modules=good.modules | {"layers.9.q_proj": (a, b)}),
        r"expected A \(4, 8\)": dataclasses.replace(good, modules=good.modules | {name: (a[:, :5], b)}),
        "NaN": dataclasses.replace(good, modules=good.modules | {name: (a, b * torch.nan)}),
    }


@pytest.mark.parametrize("complaint", broken_adapters(filled_bank().adapter(0)))
def test_an_adapter_that_does_not_fit_is_refused_and_changes_nothing(complaint):
    bank = filled_bank()
    with pytest.raises(AdapterError, match=complaint):
        bank.load(0, broken_adapters(bank.adapter(0))[complaint])
    assert torch.equal(bank.master, filled_bank().master)
    assert int(bank.steps[0]) == 1


def test_state_comes_back_to_the_bit():
    bank, other = filled_bank(), LoraBank(FAMILIES, 3, 4, 8.0)
    state = bank.state()
    bank.master.zero_()  # the state is a copy
    other.restore(state)
    for name, tensor in filled_bank().state().items():
        assert torch.equal(other.state()[name], tensor)
    assert other.adapter(1).fingerprint() == filled_bank().adapter(1).fingerprint()


def test_a_state_of_another_bank_is_refused_before_any_change():
    bank = filled_bank()
    for state in (filled_bank(slots=2).state(), filled_bank(rank=2).state(), {"master": bank.master.clone()}):
        with pytest.raises(AdapterError, match=r"resume with the configuration"):
            bank.restore(state)
    assert torch.equal(bank.master, filled_bank().master)


@pytest.mark.parametrize(("slots", "rank"), [(0, 4), (2, 0)])
def test_an_empty_bank_is_refused(slots, rank):
    with pytest.raises(AdapterError, match="at least one slot"):
        LoraBank(FAMILIES, slots, rank, 8.0)


def test_a_bank_that_does_not_learn_has_memory_for_the_adapters_alone():
    bank = LoraBank(FAMILIES, 3, 4, 8.0, learns=False)
    bank.initialise(0)
    bank.load(1, filled_bank().adapter(2))
    assert bank.adapter(1).fingerprint() == filled_bank().adapter(2).fingerprint()
    assert all(tensor.is_meta for tensor in (bank.gradient, bank.first_moment, bank.second_moment))
    with pytest.raises(NotImplementedError, match="meta"):
        bank.state([1])


def of_rank(adapter: Adapter, rank: int) -> Adapter:
    return Adapter({name: (a[:rank].clone(), b[:, :rank].clone()) for name, (a, b) in adapter.modules.items()}, rank, 3.0)


def test_an_adapter_of_smaller_rank_comes_out_as_it_went_in_and_leaves_no_trace():
    bank = filled_bank()
    small, large = of_rank(bank.adapter(0), 2), bank.adapter(1)
    bank.load(1, small)
    assert bank.adapter(1).fingerprint() == small.fingerprint()
    assert (bank.adapter(1).rank, bank.adapter(1).alpha) == (2, 3.0)
    other = LoraBank(FAMILIES, 3, 4, 8.0)
    other.restore(bank.state())
    assert other.adapter(1).fingerprint() == small.fingerprint()
    bank.load(1, large)
    assert torch.equal(bank.master, filled_bank().master)


def test_slots_that_start_with_smaller_ranks_share_the_first_rows_and_the_scale():
    bank = LoraBank(FAMILIES, 3, 4, 8.0)
    bank.initialise(5, ranks=(4, 2, 1))
    whole = bank.adapter(0)
    for slot, rank in enumerate((4, 2, 1)):
        adapter = bank.adapter(slot)
        assert (adapter.rank, adapter.alpha / adapter.rank) == (rank, 2.0)
        assert all(torch.equal(a, whole.modules[name][0][:rank]) for name, (a, _) in adapter.modules.items())
        assert not any(a[slot, rank:].any() for a, _ in bank.factors.values())


def test_a_bank_of_another_precision_computes_with_a_copy_that_follows_the_master():
    def follows(slot: int | slice = slice(None)) -> bool:
        """Whether the copy of the slot is the master's, rounded."""
        mine = [x for family in bank.projections for x in (family.a, *family.b)]
        masters = [x for a, b in bank._parts(bank.master) for x in (a, *b)]
        return all(torch.equal(left[slot], right[slot].bfloat16()) for left, right in zip(mine, masters, strict=True))

    bank = LoraBank(FAMILIES, 2, 4, 8.0, dtype=torch.bfloat16)
    bank.initialise(0)
    assert follows()
    bank.load(1, filled_bank().adapter(0))
    assert follows()
    bank.master += 1.0
    bank.sync(0)
    assert follows(0) and not follows(1)
    bank.gradient.fill_(1.0)
    adamw_step(bank, 1, 1.0, LearnerConfig(learning_rate=0.1))
    assert follows()
    assert all(x.is_contiguous() for family in bank.projections for x in (family.a, *(b.mT for b in family.b)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_pickled_adapter_comes_back_to_the_bit_as_one_array(dtype):
    bank = LoraBank([{"a": (6, 4), "b": (6, 2)}, {"c": (3, 5)}], 2, 3, 6.0)
    bank.initialise(0)
    bank.master += torch.randn(bank.master.shape, generator=torch.Generator().manual_seed(1))
    adapter, buffers = bank.adapter(1).to(dtype), []
    pickled = pickle.dumps(adapter, protocol=5, buffer_callback=buffers.append)
    back = pickle.loads(pickled, buffers=[bytes(buffer.raw()) for buffer in buffers])
    assert len(buffers) == 1 and (back.rank, back.alpha) == (adapter.rank, adapter.alpha) and list(back.modules) == list(adapter.modules)
    for name, pair in adapter.modules.items():
        assert all(mine.dtype == dtype and torch.equal(mine, theirs) for mine, theirs in zip(back.modules[name], pair, strict=True))
    back.modules["a"][0].zero_()  # its own memory, though what carried it is read-only
