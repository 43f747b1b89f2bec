"""Many adapters train at once on problems of their own tasks: parents, and the children of one cell of the grid.

In a step all pupils of a task meet the same problems with the same random numbers, so a child is compared with its parent and its
control on equal terms: a copy of the parent begins with the parent's very answers. Pass rates are of the samples that are learned from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from populora.buffer import read_problems
from populora.engine.loading import base_folder
from populora.errors import ConfigError
from populora.practice import Exercise, exercise, learn, solve
from populora.retention.settings import RetentionConfig
from populora.rng import stream
from populora.runlog.checkpoint import FOLDER, Checkpoint, load_checkpoint, save_checkpoint
from populora.runlog.files import remove_folder
from populora.state import Run
from populora.tasks.render import solve_prompt
from populora.types import Attempt, Problem, TaskType

Curve = list[dict[str, dict[str, list[int]]]]
"""For each step, by pupil and task: how many of the samples of each problem were correct."""
Pools = Mapping[TaskType, Sequence[Problem]]
SEEDS, HELD_OUT = "seeds.jsonl", "held_out.jsonl"


@dataclass(frozen=True)
class Pupil:
    """An adapter in a slot of the bank (-1: the bare base) that attempts its ``tasks``; it stays as it is unless it ``learns``."""

    name: str
    slot: int
    tasks: tuple[TaskType, ...]
    learns: bool = True


def problem_pools(config: RetentionConfig, run: Run) -> Pools:
    """The problems of each parent's task whose prompts fit. Raises `ConfigError` if they are too few for a step."""
    own = base_folder(config.base)
    files = [Path(config.problems)] if config.problems else [own / SEEDS, own / HELD_OUT]
    found = [problem for file in files for problem in read_problems(file)]
    pools = {
        task: [one for one in found if one.task is task and run.fits(solve_prompt(run.prompts, one))]
        for task in map(TaskType, config.parents)
    }
    for task, pool in pools.items():
        if len(pool) < (needed := max(config.prompts, config.parent_prompts)):
            named = ", ".join(map(str, files))
            raise ConfigError(f"retention: a step needs {needed} problems of {task}, but {named} hold {len(pool)} that fit")
    return pools


def train(
    run: Run,
    config: RetentionConfig,
    pupils: Sequence[Pupil],
    pools: Pools,
    prompts: int,
    steps: range,
    folder: Path,
    after: Callable[[int, Curve], None],
) -> Curve:
    """Train the pupils for ``steps`` of ``prompts`` problems, from the checkpoint in ``folder`` on if there is one; ``after`` each step
    is told the curve.

    The adapters must lie in the bank already. The checkpoint is left behind: `forget` removes it when its results are safe.
    """
    done, curve = _restored(run, folder)
    for step in steps[done:]:
        asked = _exercises(run, config.samples, pupils, pools, prompts, step)
        attempts = iter(solve(run, [one for many in asked for one in many]))
        found = [[next(attempts) for _ in many] for many in asked]
        learn(run, {p.slot: [one for many in own for one in many] for p, own in zip(pupils, found, strict=True) if p.learns})
        curve.append({pupil.name: _counts(pupil, own) for pupil, own in zip(pupils, found, strict=True)})
        if len(curve) % config.checkpoint_every == 0 or len(curve) == len(steps):
            save_checkpoint(folder, Checkpoint(len(curve), run.bank.state(), {"curve": curve}), keep=1)
        after(step, curve)
    return curve


def forget(folder: Path) -> None:
    """Remove the checkpoints of a training that is over."""
    if (folder / FOLDER).exists():
        remove_folder(folder / FOLDER)


def _restored(run: Run, folder: Path) -> tuple[int, Curve]:
    checkpoint = load_checkpoint(folder)
    if checkpoint is None:
        return 0, []
    tensors: dict[str, torch.Tensor] = checkpoint.tensors
    run.bank.restore(tensors)
    return checkpoint.step, checkpoint.state["curve"]


def _exercises(run: Run, samples: int, pupils: Sequence[Pupil], pools: Pools, prompts: int, step: int) -> list[list[Exercise]]:
    """What each pupil attempts: ``prompts`` problems, of two tasks half of each, the first of those that one task's pupils have."""
    drawn: dict[TaskType, list[Problem]] = {}
    for task, pool in pools.items():
        chosen = stream(run.config.seed, "retention", "problems", task.value, step).choice(len(pool), prompts, replace=False)
        drawn[task] = [pool[int(index)] for index in chosen]
    share = {pupil.name: prompts // (len(pupil.tasks) if pupil.learns else 1) for pupil in pupils}
    return [
        [
            exercise(run, problem, pupil.slot, samples, ("retention", step, problem.id))
            for task in pupil.tasks
            for problem in drawn[task][: share[pupil.name]]
        ]
        for pupil in pupils
    ]


def _counts(pupil: Pupil, attempts: Sequence[Sequence[Attempt]]) -> dict[str, list[int]]:
    """Correct samples of each problem, by task."""
    counts: dict[str, list[int]] = {task.value: [] for task in pupil.tasks}
    for many in attempts:
        counts[many[0].problem.task.value].append(sum(one.correct for one in many))
    return counts
