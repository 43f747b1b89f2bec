"""The experiment: parents with snapshots, and in each cell of the grid the children of every operator, trained on.

``OUT/parents/seed_0/step_00025/code_i`` are PEFT folders, and ``OUT/cells/seed_0_step_00025.json`` is a finished cell. Finished work is not
repeated, and the rest resumes from its last checkpoint. In each cell the children are compared with the frozen parents, the bare base, and
adapters that begin anew on one task and on both (``fresh``).
"""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from populora.adapters.adapter import Adapter
from populora.adapters.operators.breeding import breed
from populora.adapters.peft_format import load_adapter, save_adapter
from populora.core.files import json_bytes, read_json, remove_folder, step_folder, write_file
from populora.core.types import Lineage, TaskType
from populora.engine.model.loading import base_name
from populora.evals.retention.settings import RetentionConfig
from populora.evals.retention.trainer import TrainedAdapter, Trainer
from populora.runs.checkpoint import ADAPTERS, FOLDER
from populora.runs.directory import record_fingerprints
from populora.training.loop import build_run
from populora.training.run import Run

FROZEN, BASE, FRESH = ("parent_1", "parent_2"), "base", ("fresh_1", "fresh_2")
Progress = Callable[[str, int, int], None]
"""Called with a title, the finished steps, and the number of all."""


def parents_file(out: Path, seed: int) -> Path:
    """Return the path of the learning curve of a seed's parents."""
    return out / "parents" / f"seed_{seed}.json"


def cell_file(out: Path, seed: int, snapshot: int) -> Path:
    """Return the path of a finished cell."""
    return out / "cells" / f"seed_{seed}_step_{snapshot:05d}.json"


def read_cells(config: RetentionConfig, out: Path) -> list[dict[str, Any]]:
    """Read the finished cells of the grid, in its order."""
    return [read_json(cell_file(out, *cell)) for cell in config.cells() if cell_file(out, *cell).exists()]


def run_grid(config: RetentionConfig, out: Path, progress: Progress) -> None:
    """Train all parents and cells that are not finished, and remove the checkpoints of what is. Raises `PopuloraError`."""
    for seed, snapshot in config.cells():
        if not parents_file(out, seed).exists():
            train_parents(config, out, seed, progress)
        if not cell_file(out, seed, snapshot).exists():
            run_cell(config, out, seed, snapshot, progress)
        parents = parents_file(out, seed).with_suffix("")
        for checkpoints in (parents / FOLDER, cell_file(out, seed, snapshot).with_suffix("")):
            if checkpoints.exists():
                remove_folder(checkpoints)
        (parents / ADAPTERS).unlink(missing_ok=True)


def train_parents(config: RetentionConfig, out: Path, seed: int, progress: Progress) -> None:
    """Train one adapter a task, and save it at every snapshot of the seed's cells."""
    snapshots = [snapshot for cell_seed, snapshot in config.cells() if cell_seed == seed]
    folder = out / "parents" / f"seed_{seed}"
    adapters = [TrainedAdapter(task, slot, (TaskType(task),)) for slot, task in enumerate(config.parents)]
    with build_run(config.run(seed, len(adapters))) as run:
        record_fingerprints(out, run.fingerprints)

        def report(step: int, done: int) -> None:
            for adapter in adapters if step in snapshots else ():
                path = step_folder(folder, step) / adapter.name
                if not path.exists():  # else written before an interruption: the same adapter
                    save_adapter(run.bank.adapter(adapter.slot), path, base_name(config.base), config.lora.targets)
            progress(f"parents of seed {seed}", done, max(snapshots))

        steps = range(1, max(snapshots) + 1)
        state = Trainer(config, run).train(adapters, config.parent_prompts, steps, folder, report)
    write_file(parents_file(out, seed), json_bytes({"seed": seed, "seconds": round(state["seconds"], 1), "curve": state["curve"]}))


def run_cell(config: RetentionConfig, out: Path, seed: int, snapshot: int, progress: Progress) -> None:
    """Breed every operator's child from the parents of a snapshot, evaluate the children, and train all of them together."""
    title, folder = f"children of seed {seed}, step {snapshot}", cell_file(out, seed, snapshot).with_suffix("")
    source = step_folder(out / "parents" / f"seed_{seed}", snapshot)
    parents = [(task, load_adapter(source / task)) for task in config.parents]
    adapters = cell_adapters(config)
    with build_run(config.run(seed, 1 + max(adapter.slot for adapter in adapters))) as run:
        record_fingerprints(out, run.fingerprints)
        children = _load_cell_adapters(run, config, adapters, parents, snapshot)
        trainer = Trainer(config, run)
        steps = range(snapshot + 1, snapshot + config.retrain_steps + 1)
        trained = [adapter for adapter in adapters if adapter.name != BASE]
        state = trainer.train(
            trained, config.prompts, steps, folder,
            report=lambda step, done: progress(title, done, len(steps)),
            measure=lambda: trainer.evaluate(adapters, ("birth", snapshot)),
        )  # fmt: skip
    cell = {"seed": seed, "snapshot": snapshot, "seconds": round(state["seconds"], 1), "children": children}
    write_file(cell_file(out, seed, snapshot), json_bytes({**cell, "initial": state["initial"], "curve": state["curve"]}))


def cell_adapters(config: RetentionConfig) -> list[TrainedAdapter]:
    """List the adapters of a cell: the children first, then those that they are compared with."""
    first, tasks = (TaskType(config.parents[0]),), tuple(map(TaskType, config.parents))
    learning = [(child.name, first if child.arity == 1 else tasks) for child in config.children()]
    learning += zip(FRESH, (first, tasks), strict=True)
    adapters = [TrainedAdapter(name, slot, tasks) for slot, (name, tasks) in enumerate(learning)]
    frozen = [
        TrainedAdapter(name, len(adapters) + index, (task,), learns=False)
        for index, (name, task) in enumerate(zip(FROZEN, tasks, strict=True))
    ]
    return [*adapters, *frozen, TrainedAdapter(BASE, -1, tasks, learns=False)]


def _load_cell_adapters(
    run: Run, config: RetentionConfig, adapters: list[TrainedAdapter], parents: list[tuple[str, Adapter]], snapshot: int
) -> dict[str, dict[str, Any]]:
    """Load parents and bred children into their slots, where the fresh adapters are already; returns the children's lineages."""
    slots = {adapter.name: adapter.slot for adapter in adapters}
    for name, (_, parent) in zip(FROZEN, parents, strict=True):
        run.bank.load(slots[name], parent)
    lineages: dict[str, dict[str, Any]] = {}
    for child in config.children():
        chosen = parents[: child.arity][:: -1 if child.swapped else 1]
        names, tensors = zip(*chosen, strict=True)
        plan = Lineage(
            child.name, 1, snapshot, child.operator.name, stream=("retention", snapshot, child.name), strength=child.strength,
            refactor=child.refactor, seed=run.config.seed,
        )  # fmt: skip
        adapter, lineage = breed(tensors, plan, names, allow_copy=True)
        run.bank.load(slots[child.name], adapter)
        lineages[child.name] = asdict(lineage)
    run.sync_weights()
    return lineages
