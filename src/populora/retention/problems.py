"""The problems of the experiment: a pool of each task, from which every step draws.

A pass rate is taken from the samples that are then learned from, so what a parent has learned is in part to know these very problems, and
an operator may lose that as well. With a pool so large that few problems return, rates are of problems that nobody has met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path

from populora.base.build import problem_of
from populora.base.samples import draw_sample
from populora.buffer import read_problems
from populora.errors import ConfigError
from populora.retention.settings import RetentionConfig
from populora.rng import stream
from populora.state import Run
from populora.tasks.render import solve_prompt
from populora.types import Problem, TaskType

Source = Callable[[TaskType, int, tuple[str | int, ...]], list[Problem]]
"""So many different problems of a task for a moment of the experiment: the same moment has the same problems."""


def problem_source(config: RetentionConfig, run: Run) -> Source:
    """Draws from the pools of the run's seed. Raises `ConfigError` where a file holds too few problems."""
    tasks = tuple(map(TaskType, config.parents))
    pools = _read(config, run) if config.problems else {task: list(islice(_made(config, run, task), config.pool)) for task in tasks}
    needed = max(config.prompts, config.parent_prompts, config.birth_problems)
    for task, pool in pools.items():
        if len(pool) < needed:
            raise ConfigError(
                f"retention: {needed} problems of {task} are needed at a time, but '{config.problems}' holds {len(pool)} that fit"
            )

    def draw(task: TaskType, number: int, moment: tuple[str | int, ...]) -> list[Problem]:
        chosen = stream(run.config.seed, "retention", "problems", task.value, *moment).choice(len(pools[task]), number, replace=False)
        return [pools[task][int(index)] for index in chosen]

    return draw


def _made(config: RetentionConfig, run: Run, task: TaskType) -> Iterator[Problem]:
    """Without end, by the generator of the tiny base's programs (as in `populora.base.room`); none of its held-out ones."""
    rng = stream(run.config.seed, "retention", "pool", task.value)
    for index in count():
        problem = problem_of(rng, task, f"{task}-{index}", "generator", draw_sample(rng, int(rng.choice(config.levels))))
        if run.fits(solve_prompt(run.prompts, problem)):
            yield problem


def _read(config: RetentionConfig, run: Run) -> dict[TaskType, list[Problem]]:
    pools: dict[TaskType, list[Problem]] = {task: [] for task in map(TaskType, config.parents)}
    for problem in read_problems(Path(config.problems)):
        if problem.task in pools and run.fits(solve_prompt(run.prompts, problem)):
            pools[problem.task].append(problem)
    return pools
