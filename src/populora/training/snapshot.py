"""A run between two steps as plain data, and back: what a checkpoint keeps.

All of it is copied, both ways: the run may go on, and one snapshot may be put back many times.
"""

from __future__ import annotations

import copy
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from populora.core.types import Lineage, Member, Rating, Role
from populora.runs.checkpoint import Checkpoint
from populora.tasks.coverage import Archive
from populora.training.population import Population
from populora.training.run import Run


def snapshot(run: Run) -> Checkpoint:
    """Everything that the coming steps depend on, but the configuration and the base."""
    archive = {f"archive.{name}": torch.from_numpy(np.array(values)) for name, values in run.archive.state().items()}
    tensors = {**{f"bank.{name}": tensor for name, tensor in run.bank.state().items()}, **archive}
    members = [asdict(member) for member in run.population.members]
    state = {"members": members, "buffer": run.buffer.state(), "valid_counts": copy.deepcopy(run.valid_counts)}
    return Checkpoint(run.step, tensors, state)


def put_back(run: Run, checkpoint: Checkpoint) -> None:
    """Undo to `snapshot`. Raises `AdapterError` for one of other adapters, `RunDirectoryError` for one of another archive."""

    def part(prefix: str) -> dict[str, torch.Tensor]:
        return {name.removeprefix(prefix): tensor for name, tensor in checkpoint.tensors.items() if name.startswith(prefix)}

    run.bank.restore(part("bank."))
    run.archive = Archive.restore({name: tensor.numpy() for name, tensor in part("archive.").items()})
    run.population = Population(tuple(_member_from(values) for values in checkpoint.state["members"]))
    run.buffer.restore(checkpoint.state["buffer"])
    run.valid_counts = copy.deepcopy(checkpoint.state["valid_counts"])
    run.step = checkpoint.step


def _member_from(values: dict[str, Any]) -> Member:
    lineage = Lineage.from_plain(values["lineage"])
    return Member(**{**values, "role": Role(values["role"]), "rating": Rating(**values["rating"]), "lineage": lineage})
