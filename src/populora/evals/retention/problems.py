"""The problems of the experiment: a pool of each task, from which every step draws.

A pass rate is taken from the samples that are then learned from, so what a parent has learned is in part to know these very problems, and
an operator may lose that as well. With a pool so large that few problems return, rates are of problems that nobody has met.

`problems.jsonl` has 96 problems of each task, of 2 to 4 statements, by the generator of the tiny base's programs (`experiments/tiny_base`).
None of them is a held-out one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from populora.core.errors import ConfigError
from populora.core.rng import stream
from populora.core.types import Problem, TaskType
from populora.evals.retention.settings import RetentionConfig
from populora.tasks.render import solve_prompt
from populora.training.buffer import read_problems
from populora.training.run import Run

SHIPPED = Path(__file__).with_name("problems.jsonl")
Source = Callable[[TaskType, int, tuple[str | int, ...]], list[Problem]]
"""Draw this many different problems of a task for a moment of the experiment: the same moment has the same problems."""


def problem_source(config: RetentionConfig, run: Run) -> Source:
    """Draw from the pools of the run's seed. Raises `ConfigError` where a file holds too few problems."""
    file = Path(config.problems or SHIPPED)
    tasks = tuple(map(TaskType, config.parents))
    fitting = [problem for problem in read_problems(file) if run.fits(solve_prompt(run.prompts, problem))]
    pools = {task: [problem for problem in fitting if problem.task is task] for task in tasks}
    if not config.problems:
        pools = {task: _pool_of_seed(problems, config.pool, run.config.seed) for task, problems in pools.items()}
    needed = max(config.prompts, config.parent_prompts, config.birth_problems)
    for task, pool in pools.items():
        if len(pool) < needed:
            raise ConfigError(f"retention: {needed} problems of {task} are needed at a time, but '{file}' has {len(pool)} that fit")

    def draw(task: TaskType, number: int, moment: tuple[str | int, ...]) -> list[Problem]:
        chosen = stream(run.config.seed, "retention", "problems", task.value, *moment).choice(len(pools[task]), number, replace=False)
        return [pools[task][int(index)] for index in chosen]

    return draw


def _pool_of_seed(problems: list[Problem], size: int, seed: int) -> list[Problem]:
    """Each seed takes the next ``size`` problems; after the last the first follows."""
    start = seed * size % max(len(problems), 1)
    return (problems[start:] + problems[:start])[:size]
