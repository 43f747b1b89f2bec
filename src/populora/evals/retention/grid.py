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

from populora.adapters.adapter import Adapter
from populora.adapters.operators.breeding import breed
from populora.adapters.peft_format import load_adapter, save_adapter
from populora.core.files import disk_errors, json_bytes, read_json, remove_folder, step_folder, write_file
from populora.core.types import Lineage, TaskType
from populora.engine.model.loading import base_name
from populora.evals.retention.problems import problem_source
from populora.evals.retention.settings import RetentionConfig
from populora.evals.retention.training import Counts, Curve, Pupil, forget, look, train
from populora.evals.retention.variants import Variant
from populora.runs.directory import record_fingerprints
from populora.training.loop import build_run
from populora.training.run import Run

FROZEN, BASE, FRESH = ("parent_1", "parent_2"), "base", ("fresh_1", "fresh_2")
"""Pupils beside the children: the frozen parents, the bare base (at birth alone), and adapters that begin anew on one task and on both."""
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
    with build_run(config.run(seed, len(pupils))) as run:
        record_fingerprints(out, run.fingerprints)

        def keep(step: int, curve: Curve) -> None:
            if step in wanted:
                for pupil in pupils:
                    place = step_folder(folder, step) / pupil.name
                    if not place.exists():  # written before an interruption: the same adapter
                        save_adapter(run.bank.adapter(pupil.slot), place, base_name(config.base), config.lora.targets)
            announce(f"parents of seed {seed}", step, max(wanted), curve)

        steps = range(1, max(wanted) + 1)
        trained = train(run, config, pupils, problem_source(config, run), config.parent_prompts, steps, folder, keep)
    content = {"seed": seed, "seconds": round(trained.seconds, 1), "curve": trained.curve}
    write_file(parents_file(out, seed), json_bytes(content))
    forget(folder)


def run_cell(config: RetentionConfig, out: Path, seed: int, snapshot: int, announce: Announce) -> None:
    """Breed every operator's child from the parents of a snapshot, look at them, and train all of them together."""
    title, folder = f"children of seed {seed}, step {snapshot}", cell_file(out, seed, snapshot).with_suffix("")
    source = step_folder(out / "parents" / f"seed_{seed}", snapshot)
    parents = [(task, load_adapter(source / task)) for task in config.parents]
    pupils = _pupils(config)
    with build_run(config.run(seed, 1 + max(pupil.slot for pupil in pupils))) as run:
        record_fingerprints(out, run.fingerprints)
        children = _occupy(run, config, pupils, parents, snapshot)
        problems = problem_source(config, run)
        birth, seconds = _birth(folder / "birth.json", lambda: look(run, config, pupils, problems, ("birth", snapshot)))
        steps = range(snapshot + 1, snapshot + config.retrain_steps + 1)
        tell = lambda step, curve: announce(title, len(curve), config.retrain_steps, curve)  # noqa: E731 - one line, used once
        seen = [pupil for pupil in pupils if pupil.name != BASE]
        trained = train(run, config, seen, problems, config.prompts, steps, folder, tell)
    content = {"seed": seed, "snapshot": snapshot, "seconds": round(seconds + trained.seconds, 1), "children": children}
    write_file(cell_file(out, seed, snapshot), json_bytes({**content, "birth": birth, "curve": trained.curve}))
    remove_folder(folder)


def _birth(file: Path, measure: Callable[[], Counts]) -> tuple[Counts, float]:
    """The counts and the seconds that they took. Measured once: a resumed cell has other adapters in the bank by then."""
    if not file.exists():
        with disk_errors(file.parent, "create"):
            file.parent.mkdir(parents=True, exist_ok=True)
        started = time.perf_counter()
        counts = measure()
        write_file(file, json_bytes({"counts": counts, "seconds": time.perf_counter() - started}))
    found = read_json(file)
    return found["counts"], found["seconds"]


def _pupils(config: RetentionConfig) -> list[Pupil]:
    """Children first, then what they are seen beside."""
    one, both = (TaskType(config.parents[0]),), tuple(map(TaskType, config.parents))
    learning = [(child.name, one if child.arity == 1 else both) for child in config.children()]
    learning += zip(FRESH, (one, both), strict=True)
    pupils = [Pupil(name, slot, tasks) for slot, (name, tasks) in enumerate(learning)]
    frozen = [Pupil(name, len(pupils) + index, (task,), learns=False) for index, (name, task) in enumerate(zip(FROZEN, both, strict=True))]
    return [*pupils, *frozen, Pupil(BASE, -1, both, learns=False)]


def _occupy(
    run: Run, config: RetentionConfig, pupils: list[Pupil], parents: list[tuple[str, Adapter]], snapshot: int
) -> dict[str, dict[str, Any]]:
    """Put every pupil's adapter into its slot (the fresh ones lie there already); how the children were bred."""
    slots = {pupil.name: pupil.slot for pupil in pupils}
    for name, (_, parent) in zip(FROZEN, parents, strict=True):
        run.bank.load(slots[name], parent)
    born: dict[str, dict[str, Any]] = {}
    for child in config.children():
        own = parents[: child.arity]
        names, adapters = zip(*(own[::-1] if child.swapped else own), strict=True)
        adapter, lineage = breed(adapters, _plan(child, run.config.seed, snapshot), names, allow_copy=True)
        run.bank.load(slots[child.name], adapter)
        born[child.name] = asdict(lineage)
    run.sync_weights()
    return born


def _plan(child: Variant, seed: int, snapshot: int) -> Lineage:
    where = ("retention", snapshot, child.name)
    return Lineage(child.name, 1, snapshot, child.operator.name, stream=where, strength=child.strength, refactor=child.refactor, seed=seed)


def read_cells(config: RetentionConfig, out: Path) -> list[dict[str, Any]]:
    """The finished cells of the grid, in its order."""
    return [read_json(cell_file(out, *cell)) for cell in config.cells() if cell_file(out, *cell).exists()]
