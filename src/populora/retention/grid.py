"""The experiment: parents with snapshots, and for each cell of the grid the children of every operator, trained on.

``OUT/parents/seed_0/step_00025/code_i`` are PEFT folders; ``OUT/cells/seed_0_step_00025.json`` holds a finished cell. What is finished
is not done again, what is half done goes on from its last checkpoint.

Beside its children a cell has pupils that show what the children's rates mean: the parents as they were (frozen), the bare base, and
adapters that begin anew (``fresh``): an operator retains something only if its children are ahead of those.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from populora.lora.adapter import Adapter
from populora.lora.peft_format import load_adapter, save_adapter
from populora.operators import get_operator
from populora.operators.breeding import breed
from populora.retention.settings import RetentionConfig
from populora.retention.training import Curve, Pupil, forget, problem_pools, train
from populora.rng import stream
from populora.runlog.files import json_bytes, read_json, step_folder, write_file
from populora.state import Run
from populora.training import prepared
from populora.types import TaskType

FROZEN, BASE, FRESH = ("parent_1", "parent_2"), "base", ("fresh_1", "fresh_2")
"""Pupils beside the children: the frozen parents, the bare base, and adapters that begin anew on one task and on both."""
Announce = Callable[[str, int, int, Curve], None]
"""Told what is being trained, the steps done, of how many, and the curve so far."""


def parents_file(out: Path, seed: int) -> Path:
    """Where the learning curve of a seed's parents is."""
    return out / "parents" / f"seed_{seed}.json"


def cell_file(out: Path, seed: int, snapshot: int) -> Path:
    """Where a finished cell is."""
    return out / "cells" / f"seed_{seed}_step_{snapshot:05d}.json"


def run_grid(config: RetentionConfig, out: Path, announce: Announce) -> None:
    """All parents and cells that are not there yet. Raises `PopuloraError`."""
    for seed, snapshot in config.cells():
        if not parents_file(out, seed).exists():
            make_parents(config, out, seed, announce)
        if not cell_file(out, seed, snapshot).exists():
            run_cell(config, out, seed, snapshot, announce)


def make_parents(config: RetentionConfig, out: Path, seed: int, announce: Announce) -> None:
    """Train one adapter a task and keep it at every snapshot that the seed's cells need."""
    tasks = tuple(map(TaskType, config.parents))
    wanted = [snapshot for own, snapshot in config.cells() if own == seed]
    folder = out / "parents" / f"seed_{seed}"
    pupils = [Pupil(task.value, slot, (task,)) for slot, task in enumerate(tasks)]
    with prepared(config.run(seed, len(pupils))) as run:

        def keep(step: int, curve: Curve) -> None:
            announce(f"parents of seed {seed}", step, max(wanted), curve)
            if step in wanted:
                for pupil in pupils:
                    place = step_folder(folder, step) / pupil.name
                    save_adapter(run.bank.adapter(pupil.slot), place, config.base.path, config.lora.targets)

        steps = range(1, max(wanted) + 1)
        curve = train(run, config, pupils, problem_pools(config, run), config.parent_prompts, steps, folder, keep)
    write_file(parents_file(out, seed), json_bytes({"seed": seed, "curve": curve}))
    forget(folder)


def run_cell(config: RetentionConfig, out: Path, seed: int, snapshot: int, announce: Announce) -> None:
    """Breed every operator's child from the parents of a snapshot and train all of them together."""
    started, title = time.perf_counter(), f"children of seed {seed}, step {snapshot}"
    folder = cell_file(out, seed, snapshot).with_suffix("")
    source = step_folder(out / "parents" / f"seed_{seed}", snapshot)
    parents = [load_adapter(source / task) for task in config.parents]
    pupils = _pupils(config)
    with prepared(config.run(seed, 1 + max(pupil.slot for pupil in pupils))) as run:
        children = _occupy(run, config, pupils, parents, seed, snapshot)
        steps = range(snapshot + 1, snapshot + config.retrain_steps + 1)
        tell = lambda step, curve: announce(title, len(curve), config.retrain_steps, curve)  # noqa: E731 - one line, used once
        curve = train(run, config, pupils, problem_pools(config, run), config.prompts, steps, folder, tell)
    content = {"seed": seed, "snapshot": snapshot, "children": children, "seconds": round(time.perf_counter() - started, 1), "curve": curve}
    write_file(cell_file(out, seed, snapshot), json_bytes(content))
    forget(folder)


def _pupils(config: RetentionConfig) -> list[Pupil]:
    """Children first, then what they are seen beside."""
    one, both = (TaskType(config.parents[0]),), tuple(map(TaskType, config.parents))
    learning = [(name, one if get_operator(name).arity == 1 else both) for name in config.children()]
    learning += zip(FRESH, (one, both), strict=True)
    pupils = [Pupil(name, slot, tasks) for slot, (name, tasks) in enumerate(learning)]
    frozen = [Pupil(name, len(pupils) + index, (task,), learns=False) for index, (name, task) in enumerate(zip(FROZEN, both, strict=True))]
    return [*pupils, *frozen, Pupil(BASE, -1, both, learns=False)]


def _occupy(
    run: Run, config: RetentionConfig, pupils: list[Pupil], parents: list[Adapter], seed: int, snapshot: int
) -> dict[str, dict[str, Any]]:
    """Put every pupil's adapter into its slot (the fresh ones lie there already); what the children are."""
    born: dict[str, dict[str, Any]] = {}
    for pupil in pupils:
        if pupil.name in FROZEN:
            run.bank.load(pupil.slot, parents[FROZEN.index(pupil.name)])
        elif pupil.slot >= 0 and pupil.name not in FRESH:
            own = parents[: get_operator(pupil.name).arity]
            child = breed(own, pupil.name, stream(seed, "retention", snapshot, pupil.name), config.refactor, allow_copy=True)
            run.bank.load(pupil.slot, child.adapter)
            measures = {name: value for name, value in asdict(child).items() if name != "adapter"}
            born[pupil.name] = {**measures, "parents": [parent.fingerprint() for parent in own]}
    return born


def read_cells(config: RetentionConfig, out: Path) -> list[dict[str, Any]]:
    """The finished cells of the grid, in its order."""
    return [read_json(cell_file(out, *cell)) for cell in config.cells() if cell_file(out, *cell).exists()]
