"""Grade solver responses from the sandbox's verdicts.

Kind ``o`` compares the answered output with the gold one. Kind ``i`` runs the problem's program on the answered input; any input with the
right output counts. Kind ``f`` runs the answered program on the hidden inputs, all of which must match. A child process that parses or
runs an answer never holds the gold value.
"""

from dataclasses import dataclass

from populora.core.config import TasksConfig
from populora.core.types import Attempt, Generation, Kind, Problem, Request, TaskType
from populora.domains.registry import domain_of
from populora.sandbox.protocol import Job, Value, Verdict
from populora.tasks.jobs import Key, Verdicts, key_of, parse_job, reason_of, run_job
from populora.tasks.parsing import answer_text, is_formatted, parse_solution, search_solution


@dataclass(frozen=True)
class SolveRequest(Request):
    """A request to the sampler for attempts at a problem. ``student`` is the id of the member that attempts it."""

    student: str
    problem: Problem
    from_buffer: bool = False
    """The problem fills the student's batch; it does not come from a proposal of this step."""


@dataclass(frozen=True)
class Answer:
    """The answer in a response. ``text`` is None where the format check fails or there is no answer."""

    formatted: bool
    text: str | None = None
    lenient: bool = False
    """The answer is outside its fence; it counts only under ``tasks.extraction = "lenient"``."""


def read_answer(task: TaskType, response: str, lenient: bool) -> Answer:
    """Extract the answer of a response; under ``lenient`` also from outside its fence."""
    if not is_formatted(response):
        return Answer(formatted=False)
    content = answer_text(response)
    text = parse_solution(task, content)
    if text is not None:
        return Answer(True, text)
    loose = search_solution(task, content)
    return Answer(True, (loose or None) if lenient else None, lenient=loose != "")


def gold_jobs(problem: Problem, tasks: TasksConfig) -> tuple[Job, ...]:
    """Build the jobs that run the program on all its inputs again, parse the recorded outputs, and for kind f judge the program as an
    answer."""
    pairs, domain = problem.shown + problem.hidden, domain_of(problem.task)
    return (
        run_job(domain, problem.program, tuple(pair.inputs for pair in pairs), tasks),
        parse_job(domain, tuple(pair.output for pair in pairs)),
        *([answer_job(problem, problem.program, tasks)] if problem.task.kind is Kind.PROGRAM else []),
    )


def expected_values(problem: Problem, gold: Verdicts, tasks: TasksConfig) -> tuple[Value, ...] | None:
    """Return the values of a correct answer, or None if the program does not return the recorded outputs again.

    Nor may those of the hidden inputs depend on the shown ones, which an answer is not run on.
    """
    computed, recorded, *as_answer = (gold[job] for job in gold_jobs(problem, tasks))
    key = key_of(tasks)
    if not (computed.ok and recorded.ok and _match(recorded.values, computed.values, key)):
        return None
    wanted = computed.values[len(problem.shown) :] if problem.task.kind is Kind.PROGRAM else computed.values
    return wanted if all(verdict.ok and _match(verdict.values, wanted, key) for verdict in as_answer) else None


def answer_job(problem: Problem, answer: str, tasks: TasksConfig) -> Job:
    """Build the job that runs or parses this answer."""
    domain = domain_of(problem.task)
    if problem.task.kind is Kind.OUTPUT:
        return parse_job(domain, (answer,))
    if problem.task.kind is Kind.INPUT:
        return run_job(domain, problem.program, (answer,), tasks)
    return run_job(domain, answer, tuple(pair.inputs for pair in problem.hidden), tasks)


def grade_attempt(
    request: SolveRequest, generation: Generation, answer: Answer, expected: tuple[Value, ...] | None, answers: Verdicts, tasks: TasksConfig
) -> Attempt:
    """Grade one response. ``expected`` is that of `expected_values`, ``answers`` holds the verdicts of `answer_job`.

    Reasons other than "" (correct): ``format``, ``no_answer``, ``wrong`` (or what the domain calls it), ``gold_not_reproduced``, the
    sandbox's.
    """
    problem = request.problem
    if expected is None:
        reason = "gold_not_reproduced"
    elif answer.text is None:
        reason = "no_answer" if answer.formatted else "format"
    else:
        reason = explain_mismatch(problem.task, answers[answer_job(problem, answer.text, tasks)], expected, key_of(tasks))
    return Attempt(
        request.student, problem, generation, answer.formatted, reason == "", reason, expected is None, request.from_buffer, answer.lenient
    )


def explain_mismatch(task: TaskType, verdict: Verdict, expected: tuple[Value, ...], key: Key) -> str:
    """Return the reason why an answer is not correct; empty if its values are the expected ones."""
    if not verdict.ok:
        return reason_of(verdict)
    differing = (pair for pair in zip(verdict.values, expected, strict=True) if not _match(pair[:1], pair[1:], key))
    answer, right = next(differing, (None, None))
    return domain_of(task).explain(answer.literal, right.literal) if answer and right else ""


def _match(values: tuple[Value, ...], expected: tuple[Value, ...], key: Key) -> bool:
    """Tell whether each value is the expected one; a list is also an expected multiset of its elements."""
    pairs = zip(values, expected, strict=True)
    return all(key(wanted) in (key(value), value.unordered and key(value.unordered)) for value, wanted in pairs)
