"""Problems in the buffer before the first step (reading 10).

A base that ships ``seeds.jsonl`` (the tiny one) uses that file. Any other base proposes the seeds itself, from one identity program
on, until ``selfplay.seeds`` problems of each type are valid.
"""

from dataclasses import replace
from pathlib import Path

from populora.core.errors import BaseModelError, ConfigError
from populora.core.rng import stream
from populora.core.types import TASK_TYPES, Example, Problem, TaskType
from populora.engine.model.loading import base_folder
from populora.tasks.proposals import ProposalRequest
from populora.tasks.render import propose_prompt
from populora.training.buffer import read_problems
from populora.training.propose import check_prompts
from populora.training.run import Run

IDENTITY = Problem("identity", TaskType.CODE_O, "def f(x):\n    return x", (Example("'Hello world'", "'Hello world'"),), author="seed")
MAX_ROUNDS, PROMPTS_PER_ROUND = 64, 64


def fill_buffer(run: Run) -> None:
    """Fill the run's buffer from the base's file of seeds, or with the base's own proposals.

    Raises `ConfigError` for a file with fewer than ``selfplay.seeds`` a type and for prompts that do not fit, `BaseModelError`
    when the base cannot propose enough valid problems.
    """
    file = base_folder(run.config.base) / "seeds.jsonl"
    if file.exists():
        _read_seeds(run, file)
    else:
        _propose_seeds(run)


def _read_seeds(run: Run, file: Path) -> None:
    problems = read_problems(file)
    measures = run.verifier.measures([problem.program for problem in problems])
    count = run.config.selfplay.seeds
    for task in TASK_TYPES:
        seeds = [(problem, measured) for problem, measured in zip(problems, measures, strict=True) if problem.task is task]
        if len(seeds) < count:
            raise ConfigError(f"selfplay.seeds is {count}, but '{file.name}' of the base has {len(seeds)} problems of {task}: lower it")
        for problem, measured in seeds[:count]:
            run.buffer.add(problem, measured.fingerprint)


def _propose_seeds(run: Run) -> None:
    fingerprint = run.verifier.measures([IDENTITY.program])[0].fingerprint
    for task in (TaskType.CODE_I, TaskType.CODE_O):
        run.buffer.add(replace(IDENTITY, id=f"identity-{task}", task=task), fingerprint)
    check_prompts(run)
    for round_index in range(MAX_ROUNDS):
        lacking = [task for task in TASK_TYPES if len(run.buffer.problems(task)) < run.config.selfplay.seeds]
        if not lacking:
            return
        for task in lacking:
            _propose_round(run, task, round_index)
    counts = {task.value: len(run.buffer.problems(task)) for task in TASK_TYPES}
    raise BaseModelError(
        f"seeding stopped after {MAX_ROUNDS} rounds: expected {run.config.selfplay.seeds} valid problems of each type from the base, "
        f"got {counts}. Lower selfplay.seeds, use a stronger base, or put a seeds.jsonl into its folder."
    )


def _propose_round(run: Run, task: TaskType, round_index: int) -> None:
    """Sample one batch of proposals from the bare base (slot -1) and put the valid ones into the buffer."""
    rng = stream(run.config.seed, "seeding", task.value, round_index)
    drawn = [run.buffer.references(task, run.prompts.references, rng) for _ in range(PROMPTS_PER_ROUND)]
    requests = [
        ProposalRequest(
            prompt=propose_prompt(run.prompts, task, references),
            slot=-1,
            samples=1,
            key=("seeding", task.value, round_index, index),
            author="seed",
            task=task,
            group=index,
            step=0,
            problem_id=f"seed-{task}-{round_index}-{index}",
            source=references[0],
        )
        for index, references in enumerate(drawn)
    ]
    responses = run.sample([request for request in requests if run.fits(request.prompt)])
    for (proposal,) in run.verifier.validate(responses):
        if proposal.problem and proposal.measures:
            run.buffer.add(proposal.problem, proposal.measures.fingerprint)
