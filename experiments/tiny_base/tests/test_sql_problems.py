"""The product's sandbox agrees with the corpus of SQL: its documents are valid proposals and right answers, its problems hold."""

from collections import Counter
from dataclasses import replace

import pytest
from experiments.tiny_base.mixtures import SQL_SETTLED
from experiments.tiny_base.sql.corpus import propose_document, sample_for, solve_document
from experiments.tiny_base.sql.problems import draw_problem
from experiments.tiny_base.sql.samples import held_out

from populora.core.config import Config, TasksConfig
from populora.core.rng import stream
from populora.core.types import Example, Generation, Kind, Problem, task_types
from populora.domains.registry import sandbox_limits
from populora.sandbox.pool import SandboxPool
from populora.tasks.attempts import SolveRequest
from populora.tasks.proposals import ProposalRequest
from populora.tasks.render import load_prompts
from populora.tasks.verifier import TaskVerifier

TYPES = task_types(["sql"])
REASONED = replace(SQL_SETTLED, styles={"direct": 1, "full": 1})


@pytest.fixture(scope="module")
def verifier():
    with SandboxPool(sandbox_limits(Config(domains=("sql",))), workers=1, allow_weak=True) as pool:
        yield TaskVerifier(pool, {"sql": load_prompts("compact", domain="sql")}, TasksConfig(), seed=0)


@pytest.mark.parametrize("task", TYPES)
def test_documents_are_valid_proposals_and_right_answers(verifier, task):
    rng = stream(5, "verified", task)
    proposals, attempts = [], []
    for index in range(16):
        sample = sample_for(rng, task, 1 + index % 8)
        source = Problem("source", TYPES[1], sample.source, (sample.example(0),))
        response = Generation(propose_document(rng, task, sample, REASONED).response, (), (), (), 0.0)
        proposals.append((ProposalRequest("", 0, 1, (), "T0", task, index, 1, f"p{index}", source), (response,)))
        shown, hidden = ((0, 1), (2, 3)) if task.kind is Kind.PROGRAM else ((0,), ())
        problem = Problem(f"a{index}", task, sample.source, tuple(map(sample.example, shown)), tuple(map(sample.example, hidden)), "hint")
        response = Generation(solve_document(rng, task, sample, REASONED).response, (), (), (), 0.0)
        attempts.append((SolveRequest("", 0, 1, (), "S0", problem), (response,)))
    assert [proposal.rejection for (proposal,) in verifier.validate(proposals)] == [""] * 16
    assert [(attempt.reason, attempt.void) for (attempt,) in verifier.judge(attempts)] == [("", False)] * 16


def test_an_answer_that_is_wrong_in_one_value_is_not_right(verifier):
    problem = Problem("wrong", TYPES[1], "SELECT a + 1 FROM t WHERE a > 2", (Example("t(a)\n1\n4\n7", "5\n8"),))
    answers = ["8\n5", "5\n9", "5"]
    responses = tuple(Generation(f"</think><answer>```output\n{rows}\n```</answer>", (), (), (), 0.0) for rows in answers)
    (attempts,) = verifier.judge([(SolveRequest("", 0, 3, (), "S0", problem), responses)])
    assert [attempt.correct for attempt in attempts] == [True, False, False]


def test_held_out_problems_are_held_out_and_complete():
    rng = stream(5, "problems")
    problems = [draw_problem(rng, task, f"{task}-{level}", "x", level, evaluation=True) for task in TYPES for level in (1, 4)]
    assert all(held_out(problem.program) for problem in problems)
    assert Counter(len(problem.shown) + len(problem.hidden) for problem in problems) == {1: 4, 4: 2}
    assert all(bool(problem.message) == (problem.task.kind is Kind.PROGRAM) for problem in problems)
