"""Many adapters train at once on problems of their own tasks: parents, and the children of one cell of the grid.

In a step all pupils of a task meet the same problems with the same random numbers, so a child is compared with its parent and its
control on equal terms: a copy of the parent begins with the parent's very answers. Pass rates are of the samples that are learned from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from populora.core.files import remove_folder
from populora.core.types import Attempt, TaskType
from populora.evals.retention.problems import Source
from populora.evals.retention.settings import RetentionConfig
from populora.runs.checkpoint import FOLDER, Checkpoint, load_checkpoint, save_checkpoint
from populora.training.batch import train_on_attempts
from populora.training.run import Run
from populora.training.solve import solve, solve_request

Counts = dict[str, dict[str, list[int]]]
"""By pupil and task: how many of the samples of each problem were correct."""
Curve = list[Counts]


@dataclass(frozen=True)
class Pupil:
    """An adapter in a slot of the bank (-1: the bare base) that attempts its ``tasks``; it stays as it is unless it ``learns``."""

    name: str
    slot: int
    tasks: tuple[TaskType, ...]
    learns: bool = True


@dataclass(frozen=True)
class Trained:
    """The counts of every step, and the seconds that all of them took, those before an interruption included."""

    curve: Curve
    seconds: float


def look(run: Run, config: RetentionConfig, pupils: Sequence[Pupil], source: Source, moment: tuple[str | int, ...]) -> Counts:
    """How every pupil does on ``birth_problems`` problems of each of its tasks, as it is."""
    return {
        pupil.name: _counts(pupil, own)
        for pupil, own in _attempts(run, config, pupils, source, moment, [config.birth_problems] * len(pupils))
    }


def train(
    run: Run,
    config: RetentionConfig,
    pupils: Sequence[Pupil],
    source: Source,
    prompts: int,
    steps: range,
    folder: Path,
    after: Callable[[int, Curve], None],
) -> Trained:
    """Train the pupils for ``steps`` of ``prompts`` problems, from the checkpoint in ``folder`` on if there is one; ``after`` each step
    is told the curve.

    The adapters must lie in the bank already. The checkpoint is left behind: `forget` removes it when its results are safe.
    """
    done, curve, before = _restored(run, folder)
    shares = [prompts // (len(pupil.tasks) if pupil.learns else 1) for pupil in pupils]
    started = time.perf_counter() - before
    for step in steps[done:]:
        found = _attempts(run, config, pupils, source, (step,), shares)
        train_on_attempts(run, {pupil.slot: [one for many in own for one in many] for pupil, own in found if pupil.learns})
        curve.append({pupil.name: _counts(pupil, own) for pupil, own in found})
        after(step, curve)  # before the checkpoint: what it keeps of this step would not be made again
        if len(curve) % config.checkpoint_every == 0 or len(curve) == len(steps):
            state = {"curve": curve, "seconds": time.perf_counter() - started}
            save_checkpoint(folder, Checkpoint(len(curve), run.bank.state(), state), keep=1)
    return Trained(curve, time.perf_counter() - started)


def forget(folder: Path) -> None:
    """Remove the checkpoints of a training that is over."""
    if (folder / FOLDER).exists():
        remove_folder(folder / FOLDER)


def _restored(run: Run, folder: Path) -> tuple[int, Curve, float]:
    checkpoint = load_checkpoint(folder)
    if checkpoint is None:
        return 0, [], 0.0
    run.bank.restore(checkpoint.tensors)
    run.sync_weights()
    return checkpoint.step, checkpoint.state["curve"], checkpoint.state["seconds"]


def _attempts(
    run: Run, config: RetentionConfig, pupils: Sequence[Pupil], source: Source, moment: tuple[str | int, ...], shares: Sequence[int]
) -> list[tuple[Pupil, list[list[Attempt]]]]:
    """Each pupil's attempts at its share of problems of each of its tasks: the first of those that the task's pupils have."""
    tasks = dict.fromkeys(task for pupil in pupils for task in pupil.tasks)
    drawn = {task: source(task, max(shares), moment) for task in tasks}
    asked = [
        [
            solve_request(run, problem, pupil.slot, config.samples, ("retention", *moment, problem.id))
            for task in pupil.tasks
            for problem in drawn[task][:share]
        ]
        for pupil, share in zip(pupils, shares, strict=True)
    ]
    attempts = iter(solve(run, [one for many in asked for one in many]))
    return [(pupil, [next(attempts) for _ in many]) for pupil, many in zip(pupils, asked, strict=True)]


def _counts(pupil: Pupil, attempts: Sequence[Sequence[Attempt]]) -> dict[str, list[int]]:
    """Correct samples of each problem, by task."""
    counts: dict[str, list[int]] = {task.value: [] for task in pupil.tasks}
    for many in attempts:
        counts[many[0].problem.task.value].append(sum(one.correct for one in many))
    return counts
