"""Checkpoints: what is saved comes back, damage is found, and a kill at any instant leaves one to resume from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from populora.core.errors import RunDirectoryError
from populora.runs.checkpoint import Checkpoint, checkpoint_steps, load_checkpoint, save_checkpoint

TENSORS = {"master": torch.arange(12.0).reshape(3, 4), "steps": torch.tensor([1, 2, 3]), "slice": torch.arange(8.0)[::2]}
STATE = {"members": [{"id": "T0", "mu": 25.1}], "text": "lone \ud800 surrogate", "nothing": None}


def folder_bytes(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_round_trip_and_equal_bytes(tmp_path: Path):
    save_checkpoint(tmp_path / "a", Checkpoint(3, TENSORS, STATE), keep=2)
    save_checkpoint(tmp_path / "b", Checkpoint(3, TENSORS, STATE), keep=2)
    loaded = load_checkpoint(tmp_path / "a")
    assert loaded and loaded.step == 3 and loaded.state == STATE
    assert all(torch.equal(loaded.tensors[name], tensor) and loaded.tensors[name].dtype == tensor.dtype for name, tensor in TENSORS.items())
    assert folder_bytes(tmp_path / "a") == folder_bytes(tmp_path / "b")


def test_only_the_newest_are_kept(tmp_path: Path):
    for step in range(5):
        save_checkpoint(tmp_path, Checkpoint(step, TENSORS, {"step": step}), keep=2)
    assert checkpoint_steps(tmp_path) == [3, 4]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step_00003", "step_00004"]


def test_run_without_checkpoint_has_none(tmp_path: Path):
    assert load_checkpoint(tmp_path) is None


def test_saving_again_does_nothing_and_another_content_is_refused(tmp_path: Path):
    save_checkpoint(tmp_path, Checkpoint(1, TENSORS, STATE), keep=1)
    save_checkpoint(tmp_path, Checkpoint(1, TENSORS, STATE), keep=1)
    with pytest.raises(RunDirectoryError, match="another content"):
        save_checkpoint(tmp_path, Checkpoint(1, TENSORS, {}), keep=1)
    loaded = load_checkpoint(tmp_path)
    assert loaded and loaded.state == STATE


def test_values_that_json_lacks_are_refused_before_writing(tmp_path: Path):
    with pytest.raises(ValueError, match="JSON"):
        save_checkpoint(tmp_path, Checkpoint(1, TENSORS, {"mu": float("nan")}), keep=1)
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damage_is_found_and_the_older_checkpoint_named(tmp_path: Path, name: str, damage: str):
    save_checkpoint(tmp_path, Checkpoint(4, TENSORS, {"step": 4}), keep=2)
    file = save_checkpoint(tmp_path, Checkpoint(5, TENSORS, {"step": 5}), keep=2) / name
    data = file.read_bytes()
    if damage == "remove":
        file.unlink()
    else:
        middle = len(data) // 2
        file.write_bytes(data[:middle] if damage == "cut" else data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    with pytest.raises(RunDirectoryError, match=r"Remove '.*step_00005'.*older checkpoint of step 4") as caught:
        load_checkpoint(tmp_path)
    assert "step_00005" in str(caught.value)


def test_only_damaged_checkpoint_says_there_is_no_older(tmp_path: Path):
    (save_checkpoint(tmp_path, Checkpoint(1, TENSORS, STATE), keep=1) / "state.json").write_bytes(b"{}")
    with pytest.raises(RunDirectoryError, match="no older checkpoint"):
        load_checkpoint(tmp_path)
