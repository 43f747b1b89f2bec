"""Atomic checkpoints: the members as PEFT folders, their optimiser states, other tensors, plain values, and a manifest of SHA-256 digests.

    checkpoints/step_00012/adapters/T0/{adapter_config.json,adapter_model.safetensors}
    checkpoints/step_00012/optimiser/T0.safetensors
    checkpoints/step_00012/{tensors.safetensors,state.json,manifest.json}
    adapters -> checkpoints/step_00012/adapters

A kill at any instant leaves the previous checkpoint or the new one, and the link points to one of them. It is written last in a step,
after the step's records and metrics (`populora.runs.metrics_log`), which a resume truncates to the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from populora.core.errors import RunDirectoryError
from populora.core.files import (
    check_digest,
    digest,
    json_bytes,
    new_folder,
    read_object,
    remove_folder,
    remove_parts,
    replace_link,
    step_folder,
    steps_in,
    write_durably,
)
from populora.core.invocation import command
from populora.runs.directory import FORMAT

if TYPE_CHECKING:
    import torch

FOLDER, ADAPTERS, OPTIMISER = "checkpoints", "adapters", "optimiser"
TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after ``step``, but for its members: plain JSON values, and tensors on the CPU."""

    step: int
    tensors: dict[str, torch.Tensor]
    state: dict[str, Any]
    folder: Path = Path()
    """Where it was read from: members' files are in ``folder/adapters`` and ``folder/optimiser``, and whoever reads them compares them with
    ``digests``, by path."""
    digests: Mapping[Path, str] = field(default_factory=dict[Path, str])
    remedy: str = ""
    """What to do if one of them is damaged."""


@dataclass(frozen=True)
class SavedMembers:
    """The members of a run in a checkpoint. ``adapters`` holds a PEFT folder for each, ``roles`` is by member id."""

    step: int
    adapters: Path
    roles: dict[str, str]
    digests: dict[str, str]

    def files(self, member: str) -> dict[str, bytes]:
        """Read a member's PEFT folder. Raises `RunDirectoryError` if it is damaged or was removed because the run went on."""
        prefix = f"{ADAPTERS}/{member}/"
        names = [name for name in self.digests if name.startswith(prefix)]
        return {name.removeprefix(prefix): check_digest(self.adapters.parent / name, self.digests[name]) for name in names}


WriteMembers = Callable[[Path], Mapping[str, str]]
"""Write the members' files into the folder of a checkpoint. Returns their digests by path from it."""


def save_checkpoint(
    folder: Path, checkpoint: Checkpoint, keep: int, write_members: WriteMembers, keep_every: int = 0, every: int = 1
) -> Path:
    """Write the checkpoint into the run ``folder``, point ``adapters`` to it, and remove all but the ``keep`` newest.

    One of a step that is no multiple of ``every``, where the run was stopped, goes with the next one, as if the run had not been stopped.
    Those of every ``keep_every``-th step stay as well, except for the untrained members of step 0. Raises `RunDirectoryError` when the disk
    refuses or the step has a checkpoint.
    """
    from safetensors.torch import save

    path = step_folder(folder / FOLDER, checkpoint.step)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
    files = {TENSORS: save(tensors), STATE: json_bytes(checkpoint.state)}
    if path.exists():
        raise RunDirectoryError(f"'{path}' exists already: was the run moved on by another process?")
    with new_folder(path) as part:
        for name, data in files.items():
            write_durably(part / name, data)
        digests = {name: digest(data) for name, data in files.items()} | dict(write_members(part))
        write_durably(part / MANIFEST, json_bytes({"format": FORMAT, "step": checkpoint.step, "sha256": digests}))
    link_adapters(folder)
    remove_parts(folder / FOLDER)
    *older, newest = checkpoint_steps(folder)
    newest_ones = [*(step for step in older if step % every == 0), newest][-keep:]
    for step in older:
        if step not in newest_ones and not (keep_every and step and step % keep_every == 0):
            remove_folder(step_folder(folder / FOLDER, step))
    return path


def checkpoint_steps(folder: Path) -> list[int]:
    """List the steps that have a checkpoint in the run ``folder``, oldest first."""
    return steps_in(folder / FOLDER)


def link_adapters(folder: Path) -> None:
    """Point ``adapters`` in the run ``folder`` to the members of its newest checkpoint."""
    link = folder / ADAPTERS
    if link.is_dir() and not link.is_symlink():  # a copy of the run that followed the link
        remove_folder(link)
    replace_link(link, step_folder(Path(FOLDER), checkpoint_steps(folder)[-1]) / ADAPTERS)


def load_checkpoint(folder: Path, step: int | None = None) -> Checkpoint | None:
    """Read the newest checkpoint of a run, or that of ``step``, but for the members' files; ``None`` if there is none. Raises
    `RunDirectoryError` for a damaged one."""
    from safetensors.torch import load

    steps = _checkpoints(folder, step)
    if not steps:
        return None
    path = step_folder(folder / FOLDER, steps[-1])
    remedy = "There is no older checkpoint."
    if len(steps) > 1:
        resume = command("resume", folder)
        remedy = f"Or remove '{path}' and type `{resume}` again: it continues from the older checkpoint of step {steps[-2]}."
    try:
        digests = _digests(path)
        tensors, state = (check_digest(path / name, digests[name]) for name in (TENSORS, STATE))
    except RunDirectoryError as error:
        raise RunDirectoryError(f"{error} {remedy}") from error
    files = {path / name: expected for name, expected in digests.items()}
    return Checkpoint(steps[-1], load(tensors), json.loads(state), path, files, remedy)


def saved_members(folder: Path, step: int | None = None) -> SavedMembers:
    """Find the members in the newest checkpoint of a run, also of one in progress, or in that of ``step``. Needs no torch.

    Raises `RunDirectoryError`.
    """
    while steps := _checkpoints(folder, step):
        path = step_folder(folder / FOLDER, steps[-1])
        try:
            digests = _digests(path)
            state = json.loads(check_digest(path / STATE, digests[STATE]))
            return SavedMembers(steps[-1], path / ADAPTERS, {member["id"]: member["role"] for member in state["members"]}, digests)
        except RunDirectoryError:
            if steps == _checkpoints(folder, step):  # else the run replaced it by the next one
                raise
    raise missing_checkpoint(folder, step)


def missing_checkpoint(folder: Path, step: int | None) -> RunDirectoryError:
    """Make the error of a run without a checkpoint, or without that of ``step``."""
    if step is None:
        return RunDirectoryError(f"'{folder}' has no checkpoint: wait until it has begun its first step")
    kept = ", ".join(map(str, checkpoint_steps(folder))) or "none"
    return RunDirectoryError(f"'{folder}' has no checkpoint of step {step}, but of {kept}: a run keeps more with keep_checkpoints_every")


def _checkpoints(folder: Path, step: int | None) -> list[int]:
    return [kept for kept in checkpoint_steps(folder) if step in (None, kept)]


def _digests(path: Path) -> dict[str, str]:
    """Read the manifest: SHA-256 of the checkpoint's files by relative path."""
    manifest = read_object(path / MANIFEST, "format", "sha256")
    if manifest["format"] != FORMAT:
        raise RunDirectoryError(f"'{path}' has another format than {FORMAT}: start a new run, or use the version that wrote it.")
    return manifest["sha256"]
