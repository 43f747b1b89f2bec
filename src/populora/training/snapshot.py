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

OPTIMISER = ("first_moment", "second_moment", "steps")
"""The bank's tensors that the members' PEFT folders do not have."""


def snapshot(run: Run) -> Checkpoint:
    """Copy everything that the coming steps depend on, except for the configuration and the base."""
    archive = {f"archive.{name}": torch.from_numpy(np.array(values)) for name, values in run.archive.state().items()}
    bank = run.bank.state()
    return Checkpoint(
        step=run.step,
        tensors={**{f"bank.{name}": bank[name] for name in OPTIMISER}, **archive},
        state={
            "members": [asdict(member) for member in run.population.members],
            "buffer": run.buffer.state(),
            "valid_counts": copy.deepcopy(run.valid_counts),
        },
        adapters={member.id: run.bank.adapter(member.slot) for member in run.population.members},
    )


def put_back(run: Run, checkpoint: Checkpoint) -> None:
    """Undo to `snapshot`. Raises `AdapterError` for one of other adapters, `RunDirectoryError` for one of another archive."""

    def part(prefix: str) -> dict[str, torch.Tensor]:
        return {name.removeprefix(prefix): tensor for name, tensor in checkpoint.tensors.items() if name.startswith(prefix)}

    archive = Archive.restore({name: tensor.numpy() for name, tensor in part("archive.").items()})
    population = Population(tuple(_member_from(values) for values in checkpoint.state["members"]))
    for member in population.members:
        run.bank.load(member.slot, checkpoint.adapters[member.id])
    run.bank.restore({**run.bank.state(), **part("bank.")})
    run.archive, run.population = archive, population
    run.buffer.restore(checkpoint.state["buffer"])
    run.valid_counts = copy.deepcopy(checkpoint.state["valid_counts"])
    run.step = checkpoint.step


def _member_from(values: dict[str, Any]) -> Member:
    lineage = Lineage.from_plain(values["lineage"])
    return Member(**{**values, "role": Role(values["role"]), "rating": Rating(**values["rating"]), "lineage": lineage})
