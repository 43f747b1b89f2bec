"""Grade solver responses from the sandbox's verdicts.

code_o compares the answered literal with the gold output. code_i runs the problem's program on the answered arguments; any input
with the right output counts. code_f runs the answered program on the hidden inputs, all of which must match. A child process that
parses or runs an answer never holds the gold value.
"""

from dataclasses import dataclass

from populora.core.config import TasksConfig
from populora.core.types import Attempt, Generation, Problem, Request, TaskType
from populora.sandbox.protocol import Job, Value, Verdict
from populora.tasks.jobs import Key, Verdicts, key_of, reason_of, run_job
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


def gold_jobs(problem: Problem, tasks: TasksConfig) -> tuple[Job, Job]:
    """Build the jobs that run the program on all its inputs again and parse the recorded outputs."""
    pairs = problem.shown + problem.hidden
    return (
        run_job(problem.program, tuple(pair.inputs for pair in pairs), tasks),
        Job("parse", texts=tuple(pair.output for pair in pairs)),
    )


def expected_values(problem: Problem, gold: Verdicts, tasks: TasksConfig) -> tuple[Value, ...] | None:
    """Return the values of a correct answer, or None if the program does not return the recorded outputs again."""
    computed, recorded = (gold[job] for job in gold_jobs(problem, tasks))
    key = key_of(tasks)
    if not (computed.ok and recorded.ok and _keys(computed.values, key) == _keys(recorded.values, key)):
        return None
    return recorded.values[len(problem.shown) :] if problem.task is TaskType.CODE_F else recorded.values


def answer_job(problem: Problem, answer: str, tasks: TasksConfig) -> Job:
    """Build the job that runs or parses this answer."""
    if problem.task is TaskType.CODE_O:
        return Job("parse", texts=(answer,))
    if problem.task is TaskType.CODE_I:
        return run_job(problem.program, (answer,), tasks)
    return run_job(answer, tuple(pair.inputs for pair in problem.hidden), tasks)


def grade_attempt(
    request: SolveRequest, generation: Generation, answer: Answer, expected: tuple[Value, ...] | None, answers: Verdicts, tasks: TasksConfig
) -> Attempt:
    """Grade one response. ``expected`` is that of `expected_values`, ``answers`` holds the verdicts of `answer_job`.

    Reasons other than "" (correct): ``format``, ``no_answer``, ``wrong``, ``gold_not_reproduced``, the sandbox's.
    """
    problem = request.problem
    if expected is None:
        reason = "gold_not_reproduced"
    elif answer.text is None:
        reason = "no_answer" if answer.formatted else "format"
    else:
        reason = explain_mismatch(answers[answer_job(problem, answer.text, tasks)], expected, key_of(tasks))
    return Attempt(
        request.student, problem, generation, answer.formatted, reason == "", reason, expected is None, request.from_buffer, answer.lenient
    )


def explain_mismatch(verdict: Verdict, expected: tuple[Value, ...], key: Key) -> str:
    """Return the reason why an answer is not correct; empty if its values are the expected ones."""
    if not verdict.ok:
        return reason_of(verdict)
    return "" if _keys(verdict.values, key) == _keys(expected, key) else "wrong"


def _keys(values: tuple[Value, ...], key: Key) -> list[str]:
    return [key(value) for value in values]
