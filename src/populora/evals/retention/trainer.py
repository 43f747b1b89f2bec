"""Train many adapters at once on problems of their own tasks: the parents, or the children of one cell of the grid.

In a step all adapters of a task attempt the same problems with the same random numbers. A child is thus compared with its parent and its
control on equal terms, and a copy of the parent begins with the parent's own answers. Pass rates are of the samples that are trained on.
Each step draws its problems from a pool. A part of what a parent learns is thus these very problems, which an operator may lose as well.
`problems.jsonl` has 96 problems of each task, of 2 to 4 statements, made by ``python -m experiments.tiny_base problems``. None of them
is held out.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from populora.core.errors import ConfigError
from populora.core.rng import stream
from populora.core.types import Attempt, Problem, TaskType
from populora.evals.retention.settings import RetentionConfig
from populora.runs.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from populora.training.buffer import read_problems
from populora.training.run import Run, read_members, write_members
from populora.training.solve import solve, solve_request
from populora.training.train_rows import train_on_attempts

SHIPPED = Path(__file__).with_name("problems.jsonl")
StreamName = tuple[str | int, ...]
Counts = dict[str, dict[str, list[int]]]
"""By adapter and task: the number of correct samples of each problem."""
Measure = Callable[[], Counts]
Report = Callable[[int, int], None]
"""Called after each step with the step and the number of finished steps."""


@dataclass(frozen=True)
class TrainedAdapter:
    """An adapter in a slot of the bank (-1: the bare base) that attempts its ``tasks``. It is frozen unless it ``learns``."""

    name: str
    slot: int
    tasks: tuple[TaskType, ...]
    learns: bool = True


class Trainer:
    """Trains and measures adapters on problems of the pools of the run's seed. Raises `ConfigError` where a file has too few problems."""

    def __init__(self, config: RetentionConfig, run: Run) -> None:
        self.config, self.run = config, run
        file = Path(config.problems or SHIPPED)
        fitting = [problem for problem in read_problems(file) if run.fits(run.solve_prompt(problem))]
        self._pools = {task: [problem for problem in fitting if problem.task is task] for task in map(TaskType, config.parents)}
        needed = max(config.prompts, config.parent_prompts, config.initial_problems)
        for task, problems in self._pools.items():
            if len(problems) < needed:
                raise ConfigError(f"retention: {needed} problems of {task} are needed at a time, but '{file}' has {len(problems)} that fit")
            if not config.problems:  # each seed takes the next part; after the last the first follows
                start = run.config.seed * config.pool % len(problems)
                self._pools[task] = (problems[start:] + problems[:start])[: config.pool]

    def draw(self, task: TaskType, count: int, stream_name: StreamName) -> list[Problem]:
        """Draw different problems of a task; the same stream name gives the same problems."""
        draws = stream(self.run.config.seed, "retention", "problems", task, *stream_name)
        return [self._pools[task][int(index)] for index in draws.choice(len(self._pools[task]), count, replace=False)]

    def evaluate(self, adapters: Sequence[TrainedAdapter], stream_name: StreamName) -> Counts:
        """Count the correct samples of every adapter on ``initial_problems`` problems of each of its tasks."""
        attempts = self._attempts(adapters, stream_name, [self.config.initial_problems] * len(adapters))
        return {adapter.name: _counts(adapter, groups) for adapter, groups in attempts}

    def train(
        self, adapters: Sequence[TrainedAdapter], prompts: int, steps: range, folder: Path, report: Report, measure: Measure = dict
    ) -> dict[str, Any]:
        """Train the adapters, resumed from ``folder``; returns ``initial`` (of ``measure``), the ``curve`` of counts, and ``seconds``."""
        started, checkpoint, run = time.perf_counter(), load_checkpoint(folder), self.run
        slots = {adapter.name: adapter.slot for adapter in adapters if adapter.learns}
        if checkpoint:
            read_members(run, slots, checkpoint)
            run.sync_weights()
        state = checkpoint.state if checkpoint else {"initial": measure(), "curve": [], "seconds": 0.0}
        started -= state["seconds"]
        curve = state["curve"]
        shares = [prompts // (len(adapter.tasks) if adapter.learns else 1) for adapter in adapters]
        for step in steps[len(curve) :]:
            attempts = self._attempts(adapters, (step,), shares)
            train_on_attempts(run, {adapter.slot: list(chain(*groups)) for adapter, groups in attempts if adapter.learns})
            curve.append({adapter.name: _counts(adapter, groups) for adapter, groups in attempts})
            report(step, len(curve))  # before the checkpoint: a resume does not repeat the files that it writes
            if len(curve) % self.config.checkpoint_every == 0 or len(curve) == len(steps):
                state["seconds"] = time.perf_counter() - started
                save_checkpoint(folder, Checkpoint(len(curve), {}, state), 1, partial(write_members, run, slots))
        return state

    def _attempts(
        self, adapters: Sequence[TrainedAdapter], stream_name: StreamName, shares: Sequence[int]
    ) -> list[tuple[TrainedAdapter, list[list[Attempt]]]]:
        """Sample each adapter's attempts at its share of the problems of each of its tasks, the first ones of those drawn for the task."""
        tasks = dict.fromkeys(task for adapter in adapters for task in adapter.tasks)
        problems = {task: self.draw(task, max(shares), stream_name) for task in tasks}
        requests = [
            [
                solve_request(self.run, problem, adapter.slot, self.config.samples, ("retention", *stream_name, problem.id))
                for task in adapter.tasks
                for problem in problems[task][:share]
            ]
            for adapter, share in zip(adapters, shares, strict=True)
        ]
        attempts = iter(solve(self.run, list(chain(*requests))))
        return [(adapter, [next(attempts) for _ in group]) for adapter, group in zip(adapters, requests, strict=True)]


def _counts(adapter: TrainedAdapter, groups: Sequence[Sequence[Attempt]]) -> dict[str, list[int]]:
    """Count the correct samples of each problem, by task."""
    counts: dict[str, list[int]] = {task: [] for task in adapter.tasks}
    for group in groups:
        counts[group[0].problem.task].append(sum(attempt.correct for attempt in group))
    return counts
