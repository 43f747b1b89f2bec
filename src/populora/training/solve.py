"""Phase 3 of a step: the requests to the matched students, and the problems that they train on.

The single agent of Absolute Zero's code trains on attempts at problems of the step before, and not on those that make rho
(``selfplay.previous_step_attempts``).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import numpy as np

from populora.core.rng import stream
from populora.core.types import Attempt, Matchup, Member, Problem, Proposal, TaskType
from populora.tasks.attempts import SolveRequest
from populora.training.run import Run


def solve_request(run: Run, problem: Problem, slot: int, samples: int, key: tuple[str | int, ...], student: str = "") -> SolveRequest:
    """Build a request for ``samples`` attempts of one slot's adapter at a problem; ``key`` names their random stream."""
    return SolveRequest(run.solve_prompt(problem), slot, samples, key, student, problem)


def solve(run: Run, requests: Sequence[SolveRequest], temperature: float = 1.0) -> list[list[Attempt]]:
    """Sample and judge the attempts of each request, in order. Raises as the sampler and the verifier do."""
    return run.verifier.judge(run.sample(requests, temperature))


def student_request(run: Run, step: int, student: Member, problem: Problem, from_buffer: bool = False) -> SolveRequest:
    """Build the request for a student's attempts at a problem in this step."""
    settings = run.config.selfplay
    samples = (from_buffer and settings.previous_step_attempts) or settings.rho_samples
    prompt, key = run.solve_prompt(problem), ("solve", step, student.id, problem.id)
    return SolveRequest(prompt, student.slot, samples, key, student.id, problem, from_buffer)


def student_requests(
    run: Run, step: int, matchups: Sequence[Matchup], proposals: Sequence[Proposal], offered: Mapping[str, SolveRequest] | None = None
) -> tuple[list[SolveRequest], set[tuple[str, str]]]:
    """Build the requests of all students: the valid problems of the student's teachers, then problems of the buffer to train on.

    Each author of a proposal has a matchup.
    ``offered`` has those that were built before, by problem id. Also returns the (student, problem id) pairs that are trained on.
    """
    places = {proposal.problem.id: place for place, proposal in enumerate(proposals) if proposal.problem}
    students = {matchup.teacher: matchup.student for matchup in matchups}
    valid: dict[str, list[Proposal]] = defaultdict(list)  # those that a student attempts
    for proposal in proposals:
        if proposal.problem:
            valid[students[proposal.author]].append(proposal)
    requests: list[SolveRequest] = []
    trained: set[tuple[str, str]] = set()
    for student in run.population.solvers:
        asked, rng = valid[student.id], stream(run.config.seed, "train-problems", step, student.id)
        problems = [proposal.problem for proposal in asked if proposal.problem]
        batch = [offered[problem.id] if offered else student_request(run, step, student, problem) for problem in problems]
        for task in run.config.task_types:
            chosen, buffered = training_problems(run, step, student, task, [proposal for proposal in asked if proposal.task is task], rng)
            batch += buffered
            trained |= {(student.id, problem.id) for problem in (*chosen, *(request.problem for request in buffered))}
        requests += sorted(batch, key=lambda request: places.get(request.problem.id, len(places)))  # the order of the attempts table
    return requests, trained


def training_problems(
    run: Run, step: int, student: Member, task: TaskType, offered: Sequence[Proposal], rng: np.random.Generator
) -> tuple[list[Problem], list[SolveRequest]]:
    """Choose ``student_batch`` problems to train on: one per teacher prompt first, then any (reading 4).

    Returns them, and requests for problems from the buffer where they are too few (reading 5) and for ``buffer_share``. By AZR's schedule
    all come from the buffer.
    """
    settings = run.config.selfplay
    count = settings.student_batch
    if settings.previous_step_attempts:
        return [], _fitting_requests(run, step, student, problems_of_previous_step(run, step, task, rng), count)
    shuffled = [offered[index] for index in rng.permutation(len(offered)).tolist()]
    first_of_group: dict[tuple[str, int], Proposal] = {}
    for proposal in shuffled:
        first_of_group.setdefault((proposal.author, proposal.group), proposal)
    ordered = sorted(shuffled, key=lambda proposal: first_of_group[proposal.author, proposal.group] is not proposal)
    wanted = max(settings.buffer_problems, count - len(ordered))
    buffered = _fitting_requests(run, step, student, run.buffer.draw(task, 4 * wanted, rng), wanted)
    return [proposal.problem for proposal in ordered[: count - len(buffered)] if proposal.problem], buffered


def problems_of_previous_step(run: Run, step: int, task: TaskType, rng: np.random.Generator) -> list[Problem]:
    """Shuffle the problems of the step before, then those of the rest of the buffer. Those before the first step are seeds."""
    stored = run.buffer.problems(task)
    shuffled = [stored[index] for index in rng.permutation(len(stored)).tolist()]
    return sorted(shuffled, key=lambda problem: problem.step < step - 1)


def _fitting_requests(run: Run, step: int, student: Member, problems: Iterable[Problem], count: int) -> list[SolveRequest]:
    """Build the requests for the first ``count`` of these problems of the buffer whose prompts fit."""
    requests = (student_request(run, step, student, problem, from_buffer=True) for problem in problems)
    return list(islice((request for request in requests if run.fits(request.prompt)), count))
