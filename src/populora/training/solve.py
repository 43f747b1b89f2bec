"""Phase 3 of a step: what a matched student is asked, and which of its attempts it trains on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from populora.core.rng import stream
from populora.core.types import TASK_TYPES, Generation, Matchup, Member, Problem, Proposal, Request, TaskType
from populora.tasks.render import solve_prompt
from populora.tasks.verifier import AttemptEntry
from populora.training.run import Run


@dataclass(frozen=True)
class Task:
    """One problem for a student; ``filled`` if it comes from the buffer, not from the student's teacher."""

    student: Member
    problem: Problem
    filled: bool

    def request(self, run: Run, step: int) -> Request:
        """``rho_samples`` attempts."""
        key = ("solve", step, self.student.id, self.problem.id)
        return Request(solve_prompt(run.prompts, self.problem), self.student.slot, run.config.selfplay.rho_samples, key)

    def entries(self, generations: Sequence[Generation]) -> list[AttemptEntry]:
        """The attempts, to be judged."""
        return [AttemptEntry(self.student.id, self.problem, generation, self.filled) for generation in generations]


def offered(student: Member, matchups: Sequence[Matchup], proposals: Sequence[Proposal]) -> list[Proposal]:
    """The valid proposals of the student's teachers: it attempts them all."""
    teachers = {matchup.teacher for matchup in matchups if matchup.student == student.id}
    return [proposal for proposal in proposals if proposal.author in teachers and proposal.problem]


def training_tasks(run: Run, step: int, student: Member, own: Sequence[Proposal]) -> tuple[list[Problem], list[Task]]:
    """Which of the ``offered`` problems the student trains on, and tasks from the buffer where they are too few."""
    chosen: list[Problem] = []
    filled: list[Task] = []
    for task in TASK_TYPES:
        some, more = training_problems(run, step, student, task, [proposal for proposal in own if proposal.task is task])
        chosen += some
        filled += [Task(student, problem, True) for problem in more]
    return chosen, filled


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
