"""Held-out evaluation inside training: greedy accuracy of every solver on a fixed suite that ships with the base."""

from collections.abc import Sequence
from statistics import fmean

from populora.core.config import BaseConfig, Config
from populora.core.errors import ConfigError
from populora.core.types import CODE_TYPES, Problem, TaskType
from populora.engine.model.loading import base_folder
from populora.training.buffer import read_problems
from populora.training.run import Run
from populora.training.solve import solve, solve_request


def evaluation_due(config: Config, step: int) -> bool:
    """Return True every ``evaluation.every`` steps, after the first and after the last one."""
    every = config.evaluation.every
    return every > 0 and (step % every == 0 or step in (1, config.steps))


def load_held_out(base: BaseConfig, per_type: int, tasks: Sequence[TaskType] = CODE_TYPES) -> list[Problem]:
    """Load ``per_type`` problems of each type from the base's suite, spread evenly over its levels. Raises `ConfigError`."""
    file = base_folder(base) / "held_out.jsonl"
    if not file.exists():
        raise ConfigError(f"the base '{base.path}' has no held-out suite ('{file.name}' beside its weights): set evaluation.every = 0")
    problems = read_problems(file)
    suite: list[Problem] = []
    for task in tasks:
        of_task = [problem for problem in problems if problem.task is task]
        if not of_task:
            raise ConfigError(f"the held-out suite of '{base.path}' has no {task}: choose a base for its domain, or evaluation.every = 0")
        if len(of_task) < per_type:
            raise ConfigError(
                f"evaluation.problems_per_type is {per_type}, but '{file.name}' of the base has {len(of_task)} problems of {task}: lower it"
            )
        suite += [of_task[index * len(of_task) // per_type] for index in range(per_type)]
    return suite


def held_out_suite(config: Config) -> list[Problem]:
    """Load the problems of a run's evaluation; none where it is off. Raises `ConfigError`."""
    return load_held_out(config.base, config.evaluation.problems_per_type, config.task_types) if config.evaluation.every else []


def check_held_out(run: Run) -> None:
    """Raise `ConfigError` unless the prompts of all held-out problems fit: before a run begins rather than in its first step."""
    if too_long := sum(not run.fits(run.solve_prompt(problem)) for problem in run.held_out):
        raise ConfigError(
            f"the prompts of {too_long} held-out problems are longer than selfplay.max_prompt_tokens, "
            f"{run.config.selfplay.max_prompt_tokens}: raise it, or set evaluation.every = 0"
        )


def evaluate_if_due(run: Run, step: int) -> dict[str, float]:
    """Compute greedy accuracy by ``member/type`` and ``member/all``, and mean response tokens by ``member/tokens``, if ``step`` is due."""
    if not evaluation_due(run.config, step):
        return {}
    requests = [
        solve_request(run, problem, member.slot, 1, ("held-out", member.id, problem.id), member.id)
        for member in run.population.solvers
        for problem in run.held_out
    ]
    attempts = [attempt for (attempt,) in solve(run, requests, temperature=0.0)]
    results: dict[str, float] = {}
    for member in run.population.solvers:
        attempts_of_member = [attempt for attempt in attempts if attempt.student == member.id]
        for task in run.config.task_types:
            results[f"{member.id}/{task}"] = fmean(attempt.correct for attempt in attempts_of_member if attempt.problem.task is task)
        results[f"{member.id}/all"] = fmean(attempt.correct for attempt in attempts_of_member)
        results[f"{member.id}/tokens"] = fmean(len(attempt.generation.tokens) for attempt in attempts_of_member)
    return results
