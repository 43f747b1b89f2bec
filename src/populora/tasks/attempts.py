"""Grading of solver responses, from verdicts alone.

code_o compares the answered literal with the gold output; code_i runs the problem's program on the answered arguments (any
input with the right output counts); code_f runs the answered program on the hidden inputs, all of which must match. A
child that parses or runs an answer never holds the gold value; a student's program never runs beside the grader.
"""

from __future__ import annotations

from dataclasses import dataclass

from populora.core.config import TasksConfig
from populora.core.types import Attempt, Generation, Problem, TaskType
from populora.sandbox.protocol import Job, Value, Verdict
from populora.tasks.jobs import Key, Verdicts, key_of, reason_of, run_job
from populora.tasks.parsing import answer_text, is_formatted, parse_solution, search_solution


@dataclass(frozen=True)
class AttemptEntry:
    """One response of a solver, to be judged."""

    student: str
    problem: Problem
    generation: Generation
    filled: bool = False


@dataclass(frozen=True)
class Answer:
    """What the text of an attempt holds: ``text`` is none where the format fails or nothing is taken for an answer."""

    formatted: bool
    text: str | None = None
    lenient: bool = False
    """No fence fits, but a lenient reader finds an answer; it counts only under ``tasks.extraction = "lenient"``."""


def read_answer(entry: AttemptEntry, lenient: bool) -> Answer:
    """The answer in an attempt's text; under ``lenient`` also outside its fence."""
    if not is_formatted(entry.generation.text):
        return Answer(formatted=False)
    content = answer_text(entry.generation.text)
    text = parse_solution(entry.problem.task, content)
    if text is not None:
        return Answer(True, text)
    found = search_solution(entry.problem.task, content)
    return Answer(True, (found or None) if lenient else None, lenient=found != "")


def gold_jobs(problem: Problem, tasks: TasksConfig) -> tuple[Job, Job]:
    """The program on all its inputs once more, and the recorded outputs as values."""
    pairs = problem.shown + problem.hidden
    return (
        run_job(problem.program, tuple(pair.inputs for pair in pairs), tasks),
        Job("parse", texts=tuple(pair.output for pair in pairs)),
    )


def answer_job(problem: Problem, answer: str, tasks: TasksConfig) -> Job:
    """What has to be run or parsed for this answer; equal jobs need to run only once."""
    if problem.task is TaskType.CODE_O:
        return Job("parse", texts=(answer,))
    if problem.task is TaskType.CODE_I:
        return run_job(problem.program, (answer,), tasks)
    return run_job(answer, tuple(pair.inputs for pair in problem.hidden), tasks)


def graded(entry: AttemptEntry, answer: Answer, gold_verdicts: Verdicts, answer_verdicts: Verdicts, tasks: TasksConfig) -> Attempt:
    """The attempt. Reasons other than "" (correct): ``format``, ``no_answer``, ``wrong``, ``gold_not_reproduced``, the sandbox's."""
    problem, key = entry.problem, key_of(tasks)
    again, gold = (gold_verdicts[job] for job in gold_jobs(problem, tasks))
    void = not (again.ok and gold.ok and _keys(again.values, key) == _keys(gold.values, key))
    if void:
        reason = "gold_not_reproduced"
    elif answer.text is None:
        reason = "no_answer" if answer.formatted else "format"
    else:
        wanted = gold.values[len(problem.shown) :] if problem.task is TaskType.CODE_F else gold.values
        reason = compare(answer_verdicts[answer_job(problem, answer.text, tasks)], wanted, key)
    return Attempt(entry.student, problem, entry.generation, answer.formatted, reason == "", reason, void, entry.filled, answer.lenient)


def compare(verdict: Verdict, wanted: tuple[Value, ...], key: Key) -> str:
    """The name of what is wrong with an answer; empty if its values are the wanted ones."""
    if not verdict.ok:
        return reason_of(verdict)
    return "" if _keys(verdict.values, key) == _keys(wanted, key) else "wrong"


def _keys(values: tuple[Value, ...], key: Key) -> list[str]:
    return [key(value) for value in values]
