"""Phase 2 of a step: what every proposer is asked, and which of its answers are problems that can be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from populora.core.errors import ConfigError
from populora.core.rng import stream
from populora.core.types import TASK_TYPES, Generation, Member, Problem, Proposal, Request, TaskType
from populora.sandbox.protocol import Measures
from populora.tasks.render import propose_prompt, solve_prompt
from populora.tasks.verifier import ProposalEntry
from populora.training.run import Run


@dataclass(frozen=True)
class Ask:
    """One prompt for a proposer. ``source`` is the first problem it is shown."""

    member: Member
    task: TaskType
    group: int
    request: Request
    source: Problem

    def entries(self, step: int, generations: Sequence[Generation]) -> list[ProposalEntry]:
        """The responses, to be validated."""
        return [
            ProposalEntry(self.member.id, self.task, self.group, one, step, f"{step}-{self.member.id}-{self.group}-{sample}", self.source)
            for sample, one in enumerate(generations)
        ]


def ask_proposers(run: Run, step: int) -> list[Ask]:
    """``prompts_per_type`` prompts of each type for every proposer, ``samples_per_prompt`` responses each."""
    settings = run.config.selfplay
    asks: list[Ask] = []
    for member in run.population.proposers:
        for task_index, task in enumerate(TASK_TYPES):
            for group in range(task_index * settings.prompts_per_type, (task_index + 1) * settings.prompts_per_type):
                prompt, references = _propose_prompt(run, step, member, task, group)
                request = Request(prompt, member.slot, settings.samples_per_prompt, ("propose", step, member.id, group))
                asks.append(Ask(member, task, group, request, references[0]))
    return asks


def _propose_prompt(run: Run, step: int, member: Member, task: TaskType, group: int) -> tuple[str, list[Problem]]:
    """A prompt that fits: references are drawn again until one does (as AZR), with one fewer after every tenth draw."""
    rng = stream(run.config.seed, "references", step, member.id, group)
    for draw in range(10 * run.prompts.references):
        references = run.buffer.references(task, run.prompts.references - draw // 10, rng)
        prompt = propose_prompt(run.prompts, task, references)
        if run.fits(prompt):
            return prompt, references
    raise ConfigError(
        f"no prompt of {task} with references fits selfplay.max_prompt_tokens, {run.config.selfplay.max_prompt_tokens}: "
        "start a run with more"
    )


def check_prompts(run: Run) -> None:
    """Raise `ConfigError` unless a proposer's prompt of each type fits: before a run begins rather than in its first step."""
    for task in TASK_TYPES:
        _propose_prompt(run, 0, run.population.members[0], task, 0)


def usable(run: Run, proposals: Sequence[Proposal]) -> list[Proposal]:
    """Validated proposals; a problem that no prompt could show to a solver or, as a reference, to a proposer is rejected."""
    return [
        replace(proposal, problem=None, rejection="prompt_too_long") if proposal.problem and not _fits(run, proposal.problem) else proposal
        for proposal in proposals
    ]


def _fits(run: Run, problem: Problem) -> bool:
    shown_to_proposers = () if problem.task is TaskType.CODE_F else (problem.task, TaskType.CODE_F)
    prompts = [propose_prompt(run.prompts, task, [problem]) for task in shown_to_proposers]
    return all(map(run.fits, [solve_prompt(run.prompts, problem), *prompts]))


def measure(run: Run, proposals: Sequence[Proposal]) -> dict[str, Measures]:
    """Complexity and identity of every valid problem's program, by problem id."""
    valid = [proposal.problem for proposal in proposals if proposal.problem]
    results = run.verifier.measures([problem.program for problem in valid])
    return {problem.id: result for problem, result in zip(valid, results, strict=True)}
