"""Problems in the buffer before the first step (reading 10).

A base that ships ``seeds.jsonl`` (the tiny one) uses that file. For any other base the base itself proposes, from one
identity program on, until ``selfplay.seeds`` problems of each type are valid; what it wrote is what later steps refer to.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from populora.core.errors import BaseModelError, ConfigError
from populora.core.rng import stream
from populora.core.types import TASK_TYPES, Example, Problem, Request, TaskType
from populora.tasks.render import propose_prompt
from populora.tasks.verifier import ProposalEntry
from populora.training.buffer import read_problems
from populora.training.propose import check_prompts, measure
from populora.training.run import Run

IDENTITY = Problem("identity", TaskType.CODE_O, "def f(x):\n    return x", (Example("'Hello world'", "'Hello world'"),), author="seed")
MAX_ROUNDS, PROMPTS_PER_ROUND = 64, 64


def seed_buffer(run: Run, file: Path | None) -> None:
    """Fill the run's buffer; of repeats in a file of seeds it holds one.

    Raises `ConfigError` for a file with fewer than ``selfplay.seeds`` a type and prompts that do not fit, `BaseModelError` when
    the base cannot propose enough valid problems.
    """
    if file is not None and file.exists():
        _from_file(run, file)
    else:
        _from_base(run)


def _from_file(run: Run, file: Path) -> None:
    problems = read_problems(file)
    measures = run.verifier.measures([problem.program for problem in problems])
    wanted = run.config.selfplay.seeds
    for task in TASK_TYPES:
        of_task = [(problem, found) for problem, found in zip(problems, measures, strict=True) if problem.task is task]
        if len(of_task) < wanted:
            raise ConfigError(f"selfplay.seeds is {wanted}, but '{file.name}' of the base has {len(of_task)} problems of {task}: lower it")
        for problem, found in of_task[:wanted]:
            run.buffer.add(problem, found.fingerprint)


def _from_base(run: Run) -> None:
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
    found = {task.value: len(run.buffer.problems(task)) for task in TASK_TYPES}
    raise BaseModelError(
        f"seeding stopped after {MAX_ROUNDS} rounds: expected {run.config.selfplay.seeds} valid problems of each type from the base, "
        f"got {found}. Lower selfplay.seeds, use a stronger base, or put a seeds.jsonl beside its weights."
    )


def _propose_round(run: Run, task: TaskType, round_index: int) -> None:
    """One batch of proposals by the bare base (slot -1), valid ones into the buffer."""
    rng = stream(run.config.seed, "seeding", task.value, round_index)
    drawn = [run.buffer.references(task, run.prompts.references, rng) for _ in range(PROMPTS_PER_ROUND)]
    prompts = [propose_prompt(run.prompts, task, references) for references in drawn]
    fitting = [index for index, prompt in enumerate(prompts) if run.fits(prompt)]
    requests = [Request(prompts[index], -1, 1, ("seeding", task.value, round_index, index)) for index in fitting]
    entries = [
        ProposalEntry("seed", task, index, generations[0], 0, f"seed-{task}-{round_index}-{index}", drawn[index][0])
        for index, generations in zip(fitting, run.generate(requests), strict=True)
    ]
    proposals = run.verifier.validate(entries)
    measures = measure(run, proposals)
    for proposal in proposals:
        if proposal.problem:
            run.buffer.add(proposal.problem, measures[proposal.problem.id].fingerprint)
