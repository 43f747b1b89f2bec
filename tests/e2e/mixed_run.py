"""Runs of Python and SQL without a model. Programs, answers and verdicts are known by hand; training computes the rest from them."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from populora.core.config import Config, EvolutionConfig, PopulationConfig, SelfplayConfig
from populora.core.rng import stream
from populora.core.types import Attempt, Example, Generation, Kind, Matchup, Measures, Problem, Proposal, TaskType
from populora.domains.registry import load_domain
from populora.runs.directory import new_run
from populora.runs.metrics_log import write_step
from populora.runs.step_record import Evolution, StepRecord
from populora.tasks.coverage import Archive
from populora.training.buffer import ProblemBuffer
from populora.training.matchmaking import match
from populora.training.population import initial_population, rate
from populora.training.rewards import cross_evaluate
from populora.training.rollout import Rollouts
from populora.training.step import coverage_of, store_problems
from populora.training.train_rows import advantages_in_order, train_rows

MIXED = Config(
    seed=3, steps=3, domains=("python", "sql"), population=PopulationConfig(teachers=2, students=2),
    selfplay=SelfplayConfig(rho_samples=4), evolution=EvolutionConfig(every=0),
)  # fmt: skip
ADD, SELECT = "def f(x):\n    return x + {}", "SELECT a + {} FROM t"


def write_run(folder: Path, config: Config = MIXED) -> Path:
    """Write a run that agrees with itself."""
    population, buffer = initial_population(config), ProblemBuffer(64, config.task_types)
    archives = {name: Archive(load_domain(name)) for name in config.domains}
    run: Any = SimpleNamespace(buffer=buffer, archives=archives, valid_counts={}, reward_sums={})
    with new_run(folder, config, {"sandbox": "full"}):
        for step in range(1, config.steps + 1):
            rng = stream(config.seed, "mixed run", step)
            matchups = match(population, config, step)
            proposals = [proposal for matchup in matchups for proposal in _proposals(rng, step, matchup.teacher, config)]
            attempts = _attempts(rng, proposals, matchups, config)
            trained = {(attempt.student, attempt.problem.id) for attempt in attempts}
            rollouts = Rollouts(proposals, attempts, trained, {}, {}, {})
            outcome = cross_evaluate(config, matchups, proposals, attempts, trained)
            rows = train_rows(config.learner, population, rollouts, outcome)
            teacher_advantages, student_advantages = advantages_in_order(rows, outcome)
            population = rate(population, outcome.matchups, config.league)
            repeats = store_problems(run, proposals, outcome)
            write_step(folder, StepRecord(
                step=step, matchups=outcome.matchups, proposals=tuple(proposals), attempts=tuple(attempts), rhos=outcome.rhos,
                teacher_rewards=outcome.teacher_rewards, teacher_advantages=teacher_advantages, student_rewards=outcome.student_rewards,
                student_advantages=student_advantages, trained=outcome.trained, members=population.members, updates={},
                evolution=Evolution(), seconds={"propose": 1.0}, overlapped={}, tokens={}, coverage=coverage_of(run), repeats=repeats,
                held_out={}, domains=config.domains,
            ))  # fmt: skip
    return folder


def _proposals(rng: np.random.Generator, step: int, author: str, config: Config) -> list[Proposal]:
    proposals: list[Proposal] = []
    for group, task in enumerate(config.task_types):
        for sample in range(3):
            problem, rejection = None, "format"
            if rng.random() < 0.8:
                problem, rejection = _problem(f"{step}-{author}-{task}-{sample}", task, int(rng.integers(1, 9)), author, step), ""
            measures = Measures(tuple(rng.integers(1, 9, 4).tolist()), str(rng.integers(9))) if problem else None
            proposals.append(Proposal(author, task, group, _said(rng, "proposal"), problem is not None, problem, rejection, measures))
    return proposals


def _problem(name: str, task: TaskType, number: int, author: str, step: int) -> Problem:
    """Add ``number`` to an integer, or to each row: in the order of the rows' values if it is even."""
    examples = [_example(task, value, number) for value in (3, 7)]
    shown, hidden = (examples[:1], examples[1:]) if task.kind is Kind.PROGRAM else (examples[:1], [])
    return Problem(name, task, _program(task, number), tuple(shown), tuple(hidden), "adds", author, step)


def _program(task: TaskType, number: int) -> str:
    if task.domain == "python":
        return ADD.format(number)
    return SELECT.format(number) + (" ORDER BY a" if number % 2 == 0 else "")


def _example(task: TaskType, value: int, number: int) -> Example:
    if task.domain == "python":
        return Example(str(value), str(value + number))
    return Example(f"t(a)\n{value}\n1", f"{1 + number}\n{value + number}")


def _attempts(rng: np.random.Generator, proposals: Sequence[Proposal], matchups: Sequence[Matchup], config: Config) -> list[Attempt]:
    students = {matchup.teacher: matchup.student for matchup in matchups}
    attempts: list[Attempt] = []
    for proposal in proposals:
        if proposal.problem:
            void, share = rng.random() < 0.1, rng.random()
            for _ in range(config.selfplay.rho_samples):
                student, right = students[proposal.author], bool(rng.random() < share)
                attempts.append(_attempt(rng, student, proposal.problem, right, void, bool(rng.random() < 0.9)))
    old = _problem("0-old", config.task_types[-1], 2, "seed", 0)
    filling = [_attempt(rng, student, old, True, False, True) for student in dict.fromkeys(students.values())]
    return attempts + [attempt._replace(from_buffer=True) for attempt in filling]


def _attempt(rng: np.random.Generator, student: str, problem: Problem, right: bool, void: bool, formatted: bool) -> Attempt:
    tag = {Kind.INPUT: "input", Kind.OUTPUT: "output", Kind.PROGRAM: problem.task.domain}[problem.task.kind]
    answer = _answer(rng, problem, right)
    text = f"because</think> <answer>```{tag}\n{answer}\n```</answer>" if formatted else answer
    correct = right and formatted and not void
    reason = "gold_not_reproduced" if void else "" if correct else "wrong" if formatted else "format"
    return Attempt(student, problem, _said(rng, text), formatted, correct, reason, void)


def _answer(rng: np.random.Generator, problem: Problem, right: bool) -> str:
    """A right answer in SQL may have its rows in another order, if the statement orders none."""
    (example,) = problem.shown
    ordered = problem.task.domain == "python" or "ORDER" in problem.program
    if problem.task.kind is Kind.PROGRAM:
        return problem.program if right else problem.program.replace("+", "-")
    header, _, rows = example.inputs.rpartition(")\n")
    if problem.task.domain == "python":
        header, rows = "", example.inputs if problem.task.kind is Kind.INPUT else example.output
        return rows if right else f"{rows}0"
    lines = (rows if problem.task.kind is Kind.INPUT else example.output).split("\n")
    lines = lines if ordered and problem.task.kind is Kind.OUTPUT else lines[:: int(rng.choice([-1, 1]))]
    lines = lines if right else [*lines[:-1], lines[-1] + "0"]
    return (f"{header})\n" if problem.task.kind is Kind.INPUT else "") + "\n".join(lines)


def _said(rng: np.random.Generator, text: str) -> Generation:
    tokens = int(rng.integers(4, 30))
    return Generation(text, (1, 2), tuple(range(tokens)), (-0.5,) * tokens, float(rng.random()))
