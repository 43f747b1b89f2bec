"""From the text of a proposal to a problem, in the stages of the verifier: text, inputs and complexity, outputs.

Readings of AZR (docs/decisions.md): inputs are literals that a sandbox child parses, kept as it writes them back, so that
white space and comments cannot carry a message to the student; code_f hides a seeded half of its pairs instead of the last
ones and needs distinct inputs and at least two distinct outputs. Each stage gives the next one's value or a rejection's name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from populora.core.config import TasksConfig
from populora.core.rng import stream
from populora.core.types import Example, Generation, Problem, TaskType
from populora.sandbox.protocol import Job
from populora.tasks.jobs import Key, Verdicts, key_of, measure_job, reason_of, run_job
from populora.tasks.parsing import ProposalText, answer_text, has_markup, is_formatted, leaks_program, parse_proposal


@dataclass(frozen=True)
class ProposalEntry:
    """One response of a proposer, to be validated. ``source`` is the problem whose program a code_f proposer was given."""

    author: str
    task: TaskType
    group: int
    generation: Generation
    step: int
    problem_id: str
    """Id of the problem if it is valid; also names the shuffle that hides half of a code_f problem's pairs."""
    source: Problem | None = None


def read(entry: ProposalEntry, code_f_inputs: int) -> ProposalText | str:
    """First stage: the text alone. Rejections: ``format``, those of `parse_proposal`, ``message_leaks_program``."""
    if not is_formatted(entry.generation.text):
        return "format"
    text = parse_proposal(entry.task, answer_text(entry.generation.text), code_f_inputs)
    if isinstance(text, str) or entry.task is not TaskType.CODE_F:
        return text
    if entry.source is None:
        raise ValueError(f"proposal {entry.problem_id}: a code_f entry needs the source problem its proposer was shown, got None")
    if leaks_program(text.message, entry.source.program):
        return "message_leaks_program"
    return replace(text, program=entry.source.program)


def check_jobs(text: ProposalText) -> tuple[Job, Job]:
    """Jobs of the second stage. What passes can be measured later: no program reaches the records that cannot."""
    return measure_job(text.program), Job("parse", texts=text.inputs, as_arguments=True)


def checked(text: ProposalText, verdicts: Verdicts, key: Key) -> ProposalText | str:
    """Second stage: the proposal with its inputs as the sandbox writes them.

    Rejections: sandbox reasons, ``duplicate_inputs``, ``contains_markup`` (an escape such as ``\\x3c`` can hide it before).
    """
    measured, parsed = (verdicts[job] for job in check_jobs(text))
    for verdict in (measured, parsed):
        if not verdict.ok:
            return reason_of(verdict)
    if len(set(map(key, parsed.values))) < len(parsed.values):
        return "duplicate_inputs"
    inputs = tuple(value.literal for value in parsed.values)
    return "contains_markup" if has_markup(*inputs) else replace(text, inputs=inputs)


def completed(entry: ProposalEntry, text: ProposalText, verdicts: Verdicts, tasks: TasksConfig, split_seed: int | None) -> Problem | str:
    """Last stage: the problem, with the outputs that the sandbox computed. Without ``split_seed`` the last half of code_f is hidden.

    Rejections: sandbox reasons, ``constant_outputs``, ``contains_markup`` (a program can put it together as it runs).
    """
    verdict = verdicts[run_job(text.program, text.inputs, tasks)]
    if not verdict.ok:
        return reason_of(verdict)
    if has_markup(*(value.literal for value in verdict.values)):
        return "contains_markup"
    pairs = tuple(Example(inputs, value.literal) for inputs, value in zip(text.inputs, verdict.values, strict=True))
    shown, hidden = pairs, ()
    if entry.task is TaskType.CODE_F:
        if len(set(map(key_of(tasks), verdict.values))) < 2:
            return "constant_outputs"
        shown, hidden = _split(pairs, split_seed, entry.problem_id)
    return Problem(entry.problem_id, entry.task, text.program, shown, hidden, text.message, entry.author, entry.step)


def _split(pairs: tuple[Example, ...], seed: int | None, problem_id: str) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Shown and hidden pairs, each in the proposer's order; of an odd number one more is hidden. Without a seed the last are."""
    order = range(len(pairs)) if seed is None else stream(seed, "code_f_split", problem_id).permutation(len(pairs))
    shown = {int(index) for index in order[: len(pairs) // 2]}
    return (
        tuple(pair for index, pair in enumerate(pairs) if index in shown),
        tuple(pair for index, pair in enumerate(pairs) if index not in shown),
    )
