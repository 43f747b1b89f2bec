"""Phase 3 of a step: matched students attempt their teachers' problems; which of the attempts they train on."""

from __future__ import annotations

from collections.abc import Sequence

from populora.rng import stream
from populora.state import Run
from populora.tasks.render import solve_prompt
from populora.tasks.verifier import AttemptEntry
from populora.types import TASK_TYPES, Matchup, Member, Problem, Proposal, Request, TaskType


def solve(
    run: Run, step: int, matchups: Sequence[Matchup], proposals: Sequence[Proposal]
) -> tuple[list[AttemptEntry], set[tuple[str, str]]]:
    """Attempts of every solver at its teachers' valid problems, and which (student, problem id) pairs it trains on."""
    asked: list[tuple[Member, Problem, bool]] = []
    trained: set[tuple[str, str]] = set()
    for student in run.population.solvers:
        teachers = {matchup.teacher for matchup in matchups if matchup.student == student.id}
        offered = [proposal for proposal in proposals if proposal.author in teachers and proposal.problem]
        asked += [(student, proposal.problem, False) for proposal in offered if proposal.problem]
        for task in TASK_TYPES:
            chosen, filled = training_problems(run, step, student, task, [p for p in offered if p.task is task])
            asked += [(student, problem, True) for problem in filled]
            trained |= {(student.id, problem.id) for problem in (*chosen, *filled)}
    requests = [
        Request(solve_prompt(run.prompts, problem), student.slot, run.config.selfplay.rho_samples, ("solve", step, student.id, problem.id))
        for student, problem, _ in asked
    ]
    responses = run.generate(requests)
    answers = [
        AttemptEntry(student.id, problem, generation, filled)
        for (student, problem, filled), generations in zip(asked, responses, strict=True)
        for generation in generations
    ]
    return answers, trained


def training_problems(
    run: Run, step: int, student: Member, task: TaskType, offered: Sequence[Proposal]
) -> tuple[list[Problem], list[Problem]]:
    """``prompts_per_type`` problems: one per teacher prompt first, then any (reading 4), then from the buffer (reading 5)."""
    wanted = run.config.selfplay.prompts_per_type
    rng = stream(run.config.seed, "train-problems", step, student.id, task.value)
    shuffled = [offered[int(index)] for index in rng.permutation(len(offered))]
    first_of_group: dict[tuple[str, int], Proposal] = {}
    for proposal in shuffled:
        first_of_group.setdefault((proposal.author, proposal.group), proposal)
    firsts = list(first_of_group.values())
    taken = {id(proposal) for proposal in firsts}
    ordered = [*firsts, *(proposal for proposal in shuffled if id(proposal) not in taken)]
    chosen = [proposal.problem for proposal in ordered[:wanted] if proposal.problem]
    past = run.buffer.fill(task, 4 * (wanted - len(chosen)), rng)
    fitting = [problem for problem in past if run.fits(solve_prompt(run.prompts, problem))]
    return chosen, fitting[: wanted - len(chosen)]
