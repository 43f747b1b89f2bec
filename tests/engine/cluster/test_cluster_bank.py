"""The bank of a cluster has the adapters of a bank in one process, whoever dies, and holds none of them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from local_pool import SETTINGS, SLOTS, LocalPool, Reference

from populora.core.errors import ClusterError, RunDirectoryError
from populora.core.files import digest
from populora.core.types import Lineage
from populora.engine.bank import Birth
from populora.engine.cluster.cluster_bank import ClusterBank
from populora.engine.cluster.load_balancing import owners_of
from populora.engine.model.bank import LoraBank

PLAN = Lineage("T0", 1, 10, "m1", stream=("evolve", 10, "T0"), refactor="revive", seed=3)
BIRTHS = [
    Birth(0, (1, 3), ("T1#0", "S1#0"), replace(PLAN, operator="x1")),
    Birth(3, (0,), ("T0#0",), replace(PLAN, member="S1", stream=("evolve", 10, "S1"))),  # from the slot that the other one replaces
]
NAMES = {f"M{slot}": slot for slot in range(SLOTS)}
TARGETS = SETTINGS.lora.targets


@pytest.fixture
def make_bank(make_actor) -> Callable[..., ClusterBank]:
    def make(dies=()) -> ClusterBank:
        owners, stored = owners_of(SLOTS, 2), {}

        def started(index: int):
            actor = make_actor(owned := [slot for slot, owner in owners.items() if owner == index])
            for slot in owned:
                if slot in stored:
                    actor.load([slot], stored[slot].state.value)
            return actor

        return ClusterBank(LocalPool(started, 2, dies), SLOTS, stored)

    return make


@pytest.fixture
def trained(single) -> LoraBank:
    """The oracle: trained adapters in this process."""
    bank = single.adapted.bank
    bank.first_moment += 0.5
    bank.second_moment += 0.25
    bank.steps += 7
    return bank


def assert_equal(bank: ClusterBank, local: LoraBank) -> None:
    """What is stored, and what the owners have, are the slots of the other bank."""
    for slot in range(SLOTS):
        for name, expected in local.state([slot]).items():
            assert torch.equal(bank.stored[slot].state.value[name], expected), (slot, name)
        assert bank.adapter(slot).fingerprint() == local.adapter(slot).fingerprint()
        assert bank.stored[slot].adapter.value.fingerprint() == local.adapter(slot).fingerprint()
        assert bank.untrained(slot) is local.untrained(slot)


def copied(bank: ClusterBank, local: LoraBank, folder) -> ClusterBank:
    """Let the owners read what the other bank writes."""
    folder.mkdir(exist_ok=True)
    local.write_adapters(folder / "adapters", NAMES, "tiny", TARGETS)
    local.write_optimiser(folder / "optimiser", NAMES)
    read(bank, folder)
    return bank


def read(bank: ClusterBank, folder: Path) -> None:
    files = [path for path in folder.rglob("*.*") if path.is_file()]
    bank.read(folder / "adapters", folder / "optimiser", NAMES, {path: digest(path.read_bytes()) for path in files})


def test_it_begins_like_a_bank_in_one_process_also_with_ranks_by_member(make_bank, single):
    for ranks in (None, [2, 4, 4, 2, 1]):
        bank, local = make_bank(), single.adapted.bank
        bank.initialise(5, ranks)
        local.initialise(5, ranks)
        assert_equal(bank, local)


def test_the_controller_holds_references_alone(make_bank, trained, tmp_path):
    bank = copied(make_bank(), trained, tmp_path / "files")
    bank.breed(BIRTHS)
    values = [value for stored in bank.stored.values() for value in stored]
    assert {type(value) for value in values} == {Reference, bool}
    assert not [name for name, value in vars(bank).items() if isinstance(value, torch.Tensor)]


def test_children_are_those_of_a_bank_in_one_process_and_come_from_parents_as_they_were_before(make_bank, trained, tmp_path):
    bank = copied(make_bank(), trained, tmp_path / "files")
    assert bank.basis_cosine([1, 3]) == trained.basis_cosine([1, 3])
    assert bank.breed(BIRTHS) == trained.breed(BIRTHS)
    assert_equal(bank, trained)
    assert int(bank.stored[0].state.value["steps"]) == 0 and int(bank.stored[1].state.value["steps"]) == 7
    bred = {call.arguments[0].member: call.index for call in bank._pool.calls if call.method == "breed"}
    assert bred == {"T0": bank.owners[1], "S1": bank.owners[0]}  # where the first parent is


def test_an_adapter_from_elsewhere_begins_without_an_optimiser_state(make_bank, trained, tmp_path):
    bank = copied(make_bank(), trained, tmp_path / "files")
    bank.load(2, trained.adapter(4))
    trained.load(2, trained.adapter(4))
    assert_equal(bank, trained)


def test_owners_write_the_files_of_a_bank_in_one_process(make_bank, trained, tmp_path):
    bank = copied(make_bank(), trained, tmp_path / "files")
    bank.write_adapters(tmp_path / "adapters", NAMES, "tiny", TARGETS)
    digests = bank.write_optimiser(tmp_path / "optimiser", NAMES)
    assert set(digests) == {f"{name}.safetensors" for name in NAMES}
    for kind in ("adapters", "optimiser"):
        files = {path.relative_to(tmp_path): path.read_bytes() for path in sorted((tmp_path / kind).rglob("*")) if path.is_file()}
        assert len(files) >= SLOTS and all((tmp_path / "files" / name).read_bytes() == data for name, data in files.items())


def test_a_folder_that_machines_do_not_share_is_refused(make_bank, trained, tmp_path, monkeypatch):
    bank = copied(make_bank(), trained, tmp_path / "files")
    elsewhere = tmp_path / "of another machine"
    for actor in bank._pool.members:
        write = actor.write_adapters
        monkeypatch.setattr(actor, "write_adapters", lambda folder, *rest, write=write: write(elsewhere, *rest))
    with pytest.raises(ClusterError, match=r"M0/adapter_config.json', which a learner wrote: choose a folder of the run \(--out\)"):
        bank.write_adapters(tmp_path / "adapters", NAMES, "tiny", TARGETS)


def test_an_owner_finds_a_damaged_file(make_bank, trained, tmp_path):
    bank = copied(make_bank(), trained, tmp_path)
    file = tmp_path / "optimiser" / "M4.safetensors"
    digests = {path: digest(path.read_bytes()) for path in tmp_path.rglob("*.*")}
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(RunDirectoryError, match=r"'.*M4.safetensors' is damaged"):
        bank.read(tmp_path / "adapters", tmp_path / "optimiser", NAMES, digests)


@pytest.mark.slow
def test_whichever_call_a_learner_dies_at_slots_and_files_are_those_of_an_undisturbed_run(make_bank, trained, tmp_path):
    copied(make_bank(), trained, files := tmp_path / "files")

    def written(name: str, dies=()) -> tuple[ClusterBank, dict[str, bytes]]:
        """A bank that has done everything, and what it wrote."""
        bank, folder = make_bank(dies), tmp_path / name
        bank.initialise(5)
        read(bank, files)
        bank.basis_cosine([1, 3])
        bank.breed(BIRTHS)
        bank.write_adapters(folder, NAMES, "tiny", TARGETS)
        return bank, {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*")}

    undisturbed, expected = written("undisturbed")
    calls = len(undisturbed._pool.calls)
    trained.breed(BIRTHS)
    assert_equal(undisturbed, trained)
    assert calls >= 9 and len(expected) == 2 * SLOTS
    for dies in [*range(1, calls + 1), *range(-calls, 0)]:
        bank, these = written(f"dies at {dies}", [dies])
        assert_equal(bank, trained)
        assert these == expected and bank._pool.faults == 1, dies
