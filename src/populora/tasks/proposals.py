"""The stages that turn a proposer's text into a problem: read the text, check inputs and complexity, add the outputs.

Each stage returns the next stage's value, or the name of a rejection. Readings of AZR (docs/decisions.md): a sandbox child parses the
inputs, and they are kept as it writes them back, so that white space and comments cannot carry a message to the student;
code_f hides a seeded half of its pairs and needs distinct inputs and at least two distinct outputs.
"""

from dataclasses import dataclass, replace

from populora.core.config import TasksConfig
from populora.core.rng import stream
from populora.core.types import Example, Kind, Problem, Request, TaskType
from populora.domains.declaration import Domain
from populora.domains.registry import domain_of
from populora.sandbox.protocol import Job
from populora.tasks.jobs import Key, Verdicts, key_of, measure_job, parse_job, reason_of, run_job
from populora.tasks.parsing import ProposalText, answer_text, has_markup, is_formatted, leaks_program, parse_proposal


@dataclass(frozen=True)
class ProposalRequest(Request):
    """A request to the sampler for proposals of one task type by the member ``author``."""

    author: str
    task: TaskType
    group: int
    """Index of the prompt within the author's step."""
    step: int
    problem_id: str
    """Id of the problems, to which the number of the sample is added."""
    source: Problem
    """The first problem in the prompt; a code_f proposer describes its program."""

    def sample_id(self, sample: int) -> str:
        """Return the id of the problem of one sample. It also names the shuffle that hides half of a code_f problem's pairs."""
        return f"{self.problem_id}-{sample}"


def read_proposal(request: ProposalRequest, response: str, inputs_wanted: int) -> ProposalText | str:
    """Parse the text, the first stage. Rejections: ``format``, those of `parse_proposal`, ``message_leaks_program``."""
    if not is_formatted(response):
        return "format"
    text = parse_proposal(request.task, answer_text(response), inputs_wanted)
    if isinstance(text, str) or request.task.kind is not Kind.PROGRAM:
        return text
    if leaks_program(text.message, request.source.program):
        return "message_leaks_program"
    return replace(text, program=request.source.program)


def check_jobs(domain: Domain, text: ProposalText) -> tuple[Job, Job]:
    """Build the jobs of the second stage: measure the program, parse the inputs."""
    return measure_job(domain, text.program), parse_job(domain, text.inputs, as_inputs=True)


def check_inputs(domain: Domain, text: ProposalText, verdicts: Verdicts, key: Key) -> ProposalText | str:
    """Add the program's measures and write the inputs as the sandbox does, the second stage.

    Rejections: sandbox reasons, ``duplicate_inputs``, ``contains_markup`` (an escape such as ``\\x3c`` can hide it before).
    """
    measured, parsed = (verdicts[job] for job in check_jobs(domain, text))
    for verdict in (measured, parsed):
        if not verdict.ok:
            return reason_of(verdict)
    if len(set(map(key, parsed.values))) < len(parsed.values):
        return "duplicate_inputs"
    inputs = tuple(value.literal for value in parsed.values)
    return "contains_markup" if has_markup(*inputs) else replace(text, inputs=inputs, measures=measured.measures)


def build_problem(
    request: ProposalRequest, sample: int, text: ProposalText, verdicts: Verdicts, tasks: TasksConfig, seed: int
) -> Problem | str:
    """Build the problem with the outputs that the sandbox computed, the third stage.

    ``seed`` hides half of code_f's pairs if the request has no seed and ``tasks`` want a drawn half.
    Rejections: sandbox reasons, ``constant_outputs``, ``contains_markup`` (a program can put it together as it runs).
    """
    verdict = verdicts[run_job(domain_of(request.task), text.program, text.inputs, tasks)]
    if not verdict.ok:
        return reason_of(verdict)
    if has_markup(*(value.literal for value in verdict.values)):
        return "contains_markup"
    pairs = tuple(Example(inputs, value.literal) for inputs, value in zip(text.inputs, verdict.values, strict=True))
    shown, hidden = pairs, ()
    problem_id = request.sample_id(sample)
    if request.task.kind is Kind.PROGRAM:
        if len(set(map(key_of(tasks), verdict.values))) < 2:
            return "constant_outputs"
        drawn = seed if request.seed is None else request.seed
        shown, hidden = _split(pairs, None if tasks.code_f_split == "fixed" else drawn, problem_id)
    return Problem(problem_id, request.task, text.program, shown, hidden, text.message, request.author, request.step)


def _split(pairs: tuple[Example, ...], seed: int | None, problem_id: str) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Divide the pairs into shown and hidden ones, each in the proposer's order. The hidden half is the larger one of an odd number."""
    order = range(len(pairs)) if seed is None else stream(seed, "code_f_split", problem_id).permutation(len(pairs))
    shown = {int(index) for index in order[: len(pairs) // 2]}
    return (
        tuple(pair for index, pair in enumerate(pairs) if index in shown),
        tuple(pair for index, pair in enumerate(pairs) if index not in shown),
    )
