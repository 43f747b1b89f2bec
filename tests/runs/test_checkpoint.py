"""Checkpoints: what is saved comes back, damage is found, and a kill at any instant leaves one to resume from."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from written_members import adapters_only

from populora.adapters.adapter import Adapter
from populora.adapters.peft_format import load_adapter
from populora.core.errors import RunDirectoryError
from populora.runs import checkpoint as module
from populora.runs.checkpoint import Checkpoint, checkpoint_steps, link_adapters, load_checkpoint, save_checkpoint, saved_members

TENSORS = {"master": torch.arange(12.0).reshape(3, 4), "steps": torch.tensor([1, 2, 3]), "slice": torch.arange(8.0)[::2]}
STATE = {"members": [{"id": "T0", "role": "teacher", "mu": 25.1}], "text": "lone \ud800 surrogate", "nothing": None}
BASE = "some/base", ("q_proj",)


def adapters_of(seed: int, *members: str) -> dict[str, Adapter]:
    draw = torch.Generator().manual_seed(seed)
    pair = lambda rank: (torch.randn(rank, 5, generator=draw), torch.randn(3, rank, generator=draw))  # noqa: E731
    return {member: Adapter({"layers.0.q_proj": pair(2 + n)}, 2 + n, 1.5 + n) for n, member in enumerate(members)}


def folder_bytes(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_round_trip_and_equal_bytes(tmp_path):
    adapters = adapters_of(0, "T0", "S0")
    save_checkpoint(tmp_path / "a", Checkpoint(3, TENSORS, STATE), 2, adapters_only(adapters, *BASE))
    save_checkpoint(tmp_path / "b", Checkpoint(3, TENSORS, STATE), 2, adapters_only(adapters, *BASE))
    loaded = load_checkpoint(tmp_path / "a")
    assert loaded and loaded.step == 3 and loaded.state == STATE
    assert all(torch.equal(loaded.tensors[name], tensor) and loaded.tensors[name].dtype == tensor.dtype for name, tensor in TENSORS.items())
    assert all(load_adapter(loaded.folder / "adapters" / name).fingerprint() == adapter.fingerprint() for name, adapter in adapters.items())
    assert folder_bytes(tmp_path / "a") == folder_bytes(tmp_path / "b")


def test_adapters_link_to_the_newest_checkpoint_and_are_found_without_torch(tmp_path):
    link = tmp_path / "adapters"
    for step in (1, 2):
        adapters = adapters_of(step, "T0")
        save_checkpoint(tmp_path, Checkpoint(step, {}, STATE), 1, adapters_only(adapters, *BASE))
        assert link.is_symlink() and str(link.readlink()) == f"checkpoints/step_{step:05d}/adapters"
        assert load_adapter(link / "T0").fingerprint() == adapters["T0"].fingerprint()
    saved = saved_members(tmp_path)
    assert (saved.step, saved.roles, saved.adapters) == (2, {"T0": "teacher"}, tmp_path / "checkpoints" / "step_00002" / "adapters")
    assert saved.files("T0") == {path.name: path.read_bytes() for path in (link / "T0").iterdir()}
    code = f"import sys, pathlib; from {module.__name__} import *; saved_members(pathlib.Path({str(tmp_path)!r}))"
    assert subprocess.run([sys.executable, "-c", f"{code}; sys.exit('torch' in sys.modules)"], check=False).returncode == 0


def test_a_copy_that_followed_the_link_is_linked_again(tmp_path):
    save_checkpoint(tmp_path / "run", Checkpoint(1, {}, STATE), 1, adapters_only(adapters_of(0, "T0"), *BASE))
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    assert not (tmp_path / "copy" / "adapters").is_symlink()
    link_adapters(tmp_path / "copy")
    assert (tmp_path / "copy" / "adapters").is_symlink() and folder_bytes(tmp_path / "copy") == folder_bytes(tmp_path / "run")


def test_a_checkpoint_that_makes_way_while_it_is_read_is_not_an_error(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, Checkpoint(1, {}, STATE), 1, adapters_only(adapters_of(0, "T0"), *BASE))
    before = saved_members(tmp_path)
    read = module._digests

    def moved_on(*arguments):
        monkeypatch.setattr(module, "_digests", read)
        save_checkpoint(tmp_path, Checkpoint(2, {}, STATE), 1, adapters_only(adapters_of(1, "T0"), *BASE))
        return read(*arguments)

    monkeypatch.setattr(module, "_digests", moved_on)
    assert saved_members(tmp_path).step == 2
    with pytest.raises(RunDirectoryError, match="cannot read"):
        before.files("T0")


def test_only_the_newest_are_kept(tmp_path):
    assert load_checkpoint(tmp_path) is None
    for step in range(5):
        save_checkpoint(tmp_path, Checkpoint(step, TENSORS, {"step": step}), 2, adapters_only(adapters_of(step, "T0"), *BASE))
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step_00003", "step_00004"]


def test_that_of_a_stop_takes_the_place_of_no_other(tmp_path):
    for step, kept in ((10, [10]), (15, [10, 15]), (17, [10, 17]), (20, [10, 20]), (25, [20, 25]), (30, [20, 30])):
        save_checkpoint(tmp_path, Checkpoint(step, TENSORS, {"step": step}), 2, adapters_only(adapters_of(step, "T0"), *BASE), every=10)
        assert checkpoint_steps(tmp_path) == kept


def test_those_of_every_nth_step_stay_and_their_members_are_found(tmp_path):
    for step in range(8):
        save_checkpoint(tmp_path, Checkpoint(step, {}, STATE), 2, adapters_only(adapters_of(step, "T0"), *BASE), keep_every=3)
    assert checkpoint_steps(tmp_path) == [3, 6, 7]
    saved = saved_members(tmp_path, 3)
    assert (saved.step, saved.adapters) == (3, tmp_path / "checkpoints" / "step_00003" / "adapters")
    assert load_adapter(saved.adapters / "T0").fingerprint() == adapters_of(3, "T0")["T0"].fingerprint()
    assert saved_members(tmp_path).step == 7
    with pytest.raises(RunDirectoryError, match=f"'{tmp_path}' has no checkpoint of step 0, but of 3, 6, 7"):
        saved_members(tmp_path, 0)


def test_a_second_checkpoint_of_a_step_is_refused(tmp_path):
    save_checkpoint(tmp_path, Checkpoint(1, TENSORS, STATE), 1, adapters_only(adapters_of(0, "T0"), *BASE))
    with pytest.raises(RunDirectoryError, match="exists already"):
        save_checkpoint(tmp_path, Checkpoint(1, TENSORS, {}), 1, adapters_only(adapters_of(0, "T0"), *BASE))
    loaded = load_checkpoint(tmp_path)
    assert loaded and loaded.state == STATE


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["flip", "remove"])
def test_damage_is_found_and_the_older_checkpoint_named(tmp_path, name, damage):
    save_checkpoint(tmp_path, Checkpoint(4, TENSORS, {"step": 4}), 2, adapters_only(adapters_of(4, "T0"), *BASE))
    file = save_checkpoint(tmp_path, Checkpoint(5, TENSORS, {"step": 5}), 2, adapters_only(adapters_of(5, "T0"), *BASE)) / name
    data = file.read_bytes()
    if damage == "remove":
        file.unlink()
    else:
        middle = len(data) // 2
        file.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    with pytest.raises(RunDirectoryError, match=r"step_00005.*Or remove '.*step_00005'.*older checkpoint of step 4"):
        load_checkpoint(tmp_path)
