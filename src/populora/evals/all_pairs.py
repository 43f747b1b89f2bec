"""Every student against every teacher at one step (the paper's Figure 12). In training a student meets one teacher a step."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from populora.core.config import ClusterConfig
from populora.core.errors import ConfigError
from populora.core.types import Attempt
from populora.evals.text_table import TextCell, TextRow, TextTable
from populora.runs.checkpoint import load_checkpoint, missing_checkpoint
from populora.runs.directory import check_fingerprints, read_config
from populora.training.loop import build_run
from populora.training.propose import proposal_requests
from populora.training.run import Run, restore
from populora.training.solve import solve, student_request


def solve_rates(folder: Path, step: int | None = None, prompts: int = 0) -> list[dict[str, Any]]:
    """Compute the solve rate of each student at the problems of each teacher, in the newest checkpoint of a run or in that of ``step``.
    Of several domains each has its own rates.

    Teachers propose as in the step after it, so the pairs that meet there have the same attempts there. ``prompts`` of each type replace
    the run's, if not 0. Nothing is trained or written. Raises `ConfigError`, `RunDirectoryError`.
    """
    config = read_config(folder)
    if config.population.single_agent:
        raise ConfigError(f"'{folder}': expected a run of teachers and students, got one of a single agent")
    play = replace(config.selfplay, prompts_per_type=prompts or config.selfplay.prompts_per_type, buffer_share=0.0)
    with build_run(replace(config, selfplay=play, cluster=ClusterConfig(), track=())) as run:
        check_fingerprints(folder, run.fingerprints)
        checkpoint = load_checkpoint(folder, step)  # not earlier: a run in training replaces it
        if checkpoint is None:
            raise missing_checkpoint(folder, step)
        restore(run, checkpoint)
        run.sync_weights()
        return _attempt_all(run)


def _attempt_all(run: Run) -> list[dict[str, Any]]:
    step = run.step + 1
    proposals = chain.from_iterable(run.verifier.validate(run.sample(proposal_requests(run, step))))
    problems = [proposal.problem for proposal in proposals if proposal.problem]
    requests = [student_request(run, step, student, problem) for student in run.population.solvers for problem in problems]
    return mean_rates(list(chain.from_iterable(solve(run, requests))), run.step, run.config.domains)


def mean_rates(attempts: Sequence[Attempt], step: int, domains: Sequence[str]) -> list[dict[str, Any]]:
    """Average the attempts by domain, student and teacher, without those at void problems."""
    void = {attempt.problem.id for attempt in attempts if attempt.void}
    correct: dict[tuple[str, str, str], list[bool]] = defaultdict(list)
    for attempt in attempts:
        if attempt.problem.id not in void:
            correct[attempt.problem.task.domain, attempt.student, attempt.problem.author].append(attempt.correct)
    return [
        {"snapshot": step, **({"domain": domain} if len(domains) > 1 else {}), "student": student, "teacher": teacher,
         "solve_rate": fmean(solved), "attempts": len(solved)}
        for name in domains
        for (domain, student, teacher), solved in correct.items()
        if domain == name
    ]  # fmt: skip


def pair_tables(rows: list[dict[str, Any]]) -> list[TextTable]:
    """Lay out the solve rates as matrices, students in rows, one for each domain. A teacher without a valid problem has no column."""
    domains = dict.fromkeys(row.get("domain", "") for row in rows)
    return [_pair_table([row for row in rows if row.get("domain", "") == domain], domain) for domain in domains]


def _pair_table(rows: list[dict[str, Any]], domain: str) -> TextTable:
    students, teachers = (tuple(dict.fromkeys(row[role] for row in rows)) for role in ("student", "teacher"))
    rates = {(row["student"], row["teacher"]): f"{row['solve_rate']:.2f}" for row in rows}
    matrix = tuple(TextRow(student, tuple(TextCell(rates[student, teacher]) for teacher in teachers)) for student in students)
    caption = f"Solve rates after step {rows[0]['snapshot']}" + (f", {domain}" if domain else "")
    return TextTable(caption, (("teacher", len(teachers)),), teachers, (matrix,))
