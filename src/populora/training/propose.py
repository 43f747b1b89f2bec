"""Phase 2 of a step: the requests to the proposers."""

from collections.abc import Iterable

import numpy as np

from populora.core.errors import ConfigError, PopuloraError
from populora.core.rng import stream
from populora.core.types import Problem, TaskType
from populora.tasks.proposals import ProposalRequest
from populora.tasks.render import propose_prompt
from populora.training.run import Run


def proposal_requests(run: Run, step: int) -> list[ProposalRequest]:
    """Build ``prompts_per_type`` prompts of each type for every proposer, with ``samples_per_prompt`` responses each."""
    settings = run.config.selfplay
    requests: list[ProposalRequest] = []
    for member in run.population.proposers:
        rng = stream(run.config.seed, "references", step, member.id)
        for task_index, task in enumerate(run.config.task_types):
            for group in range(task_index * settings.prompts_per_type, (task_index + 1) * settings.prompts_per_type):
                prompt, references = _fitting_prompt(run, task, rng)
                requests.append(
                    ProposalRequest(
                        prompt=prompt,
                        slot=member.slot,
                        samples=settings.samples_per_prompt,
                        key=("propose", step, member.id, group),
                        author=member.id,
                        task=task,
                        group=group,
                        step=step,
                        problem_id=f"{step}-{member.id}-{group}",
                        source=references[0],
                    )
                )
    return requests


def _fitting_prompt(run: Run, task: TaskType, rng: np.random.Generator) -> tuple[str, list[Problem]]:
    """Draw references until the prompt fits (as AZR), with one fewer after every tenth draw."""
    prompts = run.prompts[task.domain]
    for draw in range(10 * prompts.references):
        references = run.buffer.references(task, prompts.references - draw // 10, rng)
        if not references:
            raise PopuloraError(f"the buffer has no problem of {task} to show to a proposer: all were void. Start a run with more seeds")
        prompt = propose_prompt(prompts, task, references)
        if run.fits(prompt):
            return prompt, references
    raise ConfigError(
        f"no prompt of {task} with references fits selfplay.max_prompt_tokens, {run.config.selfplay.max_prompt_tokens}: "
        "start a run with more"
    )


def check_prompts(run: Run, tasks: Iterable[TaskType]) -> None:
    """Raise `ConfigError` unless a proposer's prompt of each type fits: before a run begins rather than in its first step."""
    rng = stream(run.config.seed, "references", 0)
    for task in tasks:
        _fitting_prompt(run, task, rng)
