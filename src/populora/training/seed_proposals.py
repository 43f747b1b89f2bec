"""The base proposes the seed problems itself, in rounds, from one identity program on (reading 10).

They depend on the base and on how problems are stated and verified, but not on the run: their draws have a seed of their own, and a round
does not know how many problems are wanted. The file is written after every round. Seeding that was stopped goes on from there, and ends
with the problems of an undisturbed one.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from populora.core.errors import BaseModelError
from populora.core.files import write_file
from populora.core.rng import stream
from populora.core.types import Kind, Problem, TaskType
from populora.domains.registry import domain_of
from populora.tasks.proposals import ProposalRequest
from populora.tasks.render import propose_prompt
from populora.training.buffer import ProblemBuffer
from populora.training.propose import check_prompts
from populora.training.run import Run

MAX_ROUNDS, PROMPTS_PER_ROUND = 64, 64
SEED = 0
VERSION = 1
"""Of these rules. Others make other seeds."""
Seeds = list[tuple[Problem, str]]
"""Problems in the order in which they were made, each with the fingerprint of its program."""
_NAME = re.compile(r"seed-[a-z0-9]+_[iof]-(\d+)-\d+-\d+")
"""Id of a seed: its task type, round, prompt and sample."""


def count_seeds(seeds: Seeds, tasks: Iterable[TaskType]) -> dict[TaskType, int]:
    """Count the problems of each type."""
    return {task: sum(problem.task is task for problem, _ in seeds) for task in tasks}


def propose_seeds(run: Run, tasks: Sequence[TaskType], file: Path, seeds: Seeds, stop: Callable[[], bool]) -> Seeds:
    """Continue the ``seeds`` of ``file`` until there are ``selfplay.seeds`` of each of these types, and write them after every round.

    Raises `KeyboardInterrupt` if ``stop`` is true after one, `ConfigError` for prompts that do not fit, `BaseModelError` when the base
    cannot propose enough valid problems.
    """
    wanted = run.config.selfplay.seeds
    problems = [identity_problem(task) for task in tasks if task.kind is not Kind.PROGRAM]
    measures = run.verifier.measures(problems)
    identities = [(problem, measured.fingerprint) for problem, measured in zip(problems, measures, strict=True)]
    for identity in identities:
        run.buffer.add(*identity)
    check_prompts(run, tasks)
    seeds, pool = [*seeds] or identities, ProblemBuffer(sys.maxsize, tasks)
    for seed in seeds:
        pool.add(*seed)
    for round_index in range(_rounds(seeds), MAX_ROUNDS):
        seeds += _propose_round(run, tasks, pool, round_index)
        write_file(file, "".join(f"{json.dumps(asdict(problem))}\n" for problem, _ in seeds).encode())
        if min(count_seeds(seeds, tasks).values()) >= wanted:
            return seeds
        if stop():
            raise KeyboardInterrupt
    counts = {str(task): number for task, number in count_seeds(seeds, tasks).items()}
    lower = f"Lower selfplay.seeds to {fewest}, use" if (fewest := min(counts.values())) else "Use"
    raise BaseModelError(
        f"seeding stopped after {MAX_ROUNDS} rounds: expected {wanted} valid problems of each type from the base, got {counts}. "
        f"{lower} a stronger base, or put a seeds.jsonl into its folder."
    )


def identity_problem(task: TaskType) -> Problem:
    """Return the problem of a domain's identity program for this task."""
    program, example = domain_of(task).identity
    return Problem(f"identity-{task}", task, program, (example,), author="seed")


def _propose_round(run: Run, tasks: Iterable[TaskType], pool: ProblemBuffer, round_index: int) -> Seeds:
    """Sample proposals of each type from the bare base (slot -1), add the valid ones to ``pool``, and return those that are new.

    References are the problems of earlier rounds. In the first these are the identity alone, which is too little for code_f.
    """
    requests: list[ProposalRequest] = []
    for task in tasks:
        if task.kind is Kind.PROGRAM and not round_index:
            continue
        rng, prompts = stream(SEED, "seeding", task, round_index), run.prompts[task.domain]
        for index in range(PROMPTS_PER_ROUND):
            references = pool.references(task, prompts.references, rng)
            request = ProposalRequest(
                prompt=propose_prompt(prompts, task, references),
                slot=-1,
                samples=1,
                key=("seeding", task, round_index, index),
                seed=SEED,
                author="seed",
                task=task,
                group=index,
                step=0,
                problem_id=f"seed-{task}-{round_index}-{index}",
                source=references[0],
            )
            requests += [request] if run.fits(request.prompt) else []
    proposals = [proposal for (proposal,) in run.verifier.validate(run.sample(requests))]
    valid = [(proposal.problem, proposal.measures.fingerprint) for proposal in proposals if proposal.problem and proposal.measures]
    return [seed for seed in valid if pool.add(*seed)]


def _rounds(seeds: Seeds) -> int:
    """Return the number of rounds up to the last one with a valid problem. Those after it are repeated, to the same effect."""
    names = (_NAME.fullmatch(problem.id) for problem, _ in seeds)
    return max((int(name[1]) + 1 for name in names if name), default=0)
