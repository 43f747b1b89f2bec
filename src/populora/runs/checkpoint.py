"""Atomic checkpoints: one safetensors file, one JSON file, and a manifest with the SHA-256 of both.

``checkpoints/step_00012/`` is written aside, fsynced and renamed, so a kill at any instant leaves the previous checkpoint
or the new one, never half of one. It is written last in a step, after the step's records and metrics
(`populora.runs.metrics_log`), which a resume cuts back to the checkpoint. Both files are compared with the manifest when
they are read: a damaged checkpoint stops the resume and the message names the older one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from populora.core.errors import RunDirectoryError
from populora.core.files import json_bytes, remove_folder, remove_parts, step_folder, steps_in, write_folder
from populora.core.invocation import command

FOLDER, TENSORS, STATE, MANIFEST = "checkpoints", "tensors.safetensors", "state.json", "manifest.json"
FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to go on after ``step``: tensors on the CPU and plain JSON values (tuples come back as lists)."""

    step: int
    tensors: dict[str, torch.Tensor]
    state: dict[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write the checkpoint into the run ``folder``, then remove all but the ``keep`` newest.

    ``state`` holds plain values only; a run puts no times there, so that equal runs write equal bytes; saving an equal checkpoint
    twice does nothing. Raises `RunDirectoryError` when the disk refuses or the step is already there with another content.
    """
    path = step_folder(folder / FOLDER, checkpoint.step)
    files = {
        TENSORS: safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}),
        STATE: json_bytes(checkpoint.state),
    }
    manifest = json_bytes({"format": FORMAT, "step": checkpoint.step, "sha256": {name: _sha256(data) for name, data in files.items()}})
    if path.exists():
        if not (path / MANIFEST).is_file() or (path / MANIFEST).read_bytes() != manifest:
            raise RunDirectoryError(f"'{path}' exists with another content than the one to write: was the run moved on by another process?")
        return path
    write_folder(path, {**files, MANIFEST: manifest})
    remove_parts(folder / FOLDER)
    for old in checkpoint_steps(folder)[:-keep]:
        remove_folder(step_folder(folder / FOLDER, old))
    return path


def checkpoint_steps(folder: Path) -> list[int]:
    """Steps that have a checkpoint in the run ``folder``, oldest first."""
    return steps_in(folder / FOLDER)


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest checkpoint of a run; ``None`` where none was written yet. Raises `RunDirectoryError` for a damaged one."""
    steps = checkpoint_steps(folder)
    if not steps:
        return None
    path = step_folder(folder / FOLDER, steps[-1])
    remedy = (
        f"Remove '{path}' and type `{command('resume', folder)}` again: it continues from the older checkpoint of step {steps[-2]}."
        if len(steps) > 1
        else "There is no older checkpoint: restore the file from a backup, or start a new run."
    )
    manifest = _parsed(path / MANIFEST, _read(path / MANIFEST, remedy), remedy)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT or set(manifest.get("sha256", ())) != {TENSORS, STATE}:
        raise RunDirectoryError(f"checkpoint file '{path / MANIFEST}' is unreadable: expected a manifest of format {FORMAT}. {remedy}")
    data = {name: _read(path / name, remedy) for name in (TENSORS, STATE)}
    for name, expected in manifest["sha256"].items():
        if _sha256(data[name]) != expected:
            raise RunDirectoryError(
                f"checkpoint file '{path / name}' is damaged: expected SHA-256 {expected}, got {_sha256(data[name])}. {remedy}"
            )
    return Checkpoint(manifest["step"], safetensors.torch.load(data[TENSORS]), _parsed(path / STATE, data[STATE], remedy))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read(path: Path, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunDirectoryError(f"checkpoint file '{path}' is unreadable: {error.strerror}. {remedy}") from error


def _parsed(path: Path, data: bytes, remedy: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise RunDirectoryError(f"checkpoint file '{path}' is unreadable: not valid JSON ({error}). {remedy}") from error
