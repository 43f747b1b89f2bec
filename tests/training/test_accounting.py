"""What a step samples and what it trains on, for the members of a population and for the single agent (docs/decisions.md, 3 to 5)."""

from collections import Counter
from dataclasses import replace

import pytest
from small_run import SMALL

from populora.core.config import PopulationConfig
from populora.core.types import CODE_TYPES, Attempt, Example, Generation, Problem, Proposal
from populora.training.evolution import evolve_if_due
from populora.training.loop import build_run
from populora.training.matchmaking import match
from populora.training.propose import proposal_requests
from populora.training.rewards import cross_evaluate
from populora.training.rollout import Rollouts
from populora.training.seed_buffer import fill_buffer
from populora.training.solve import student_requests
from populora.training.train_rows import train_rows

PROMPTS, SAMPLES, ATTEMPTS = 2, 3, 4


def said(tokens: int) -> Generation:
    return Generation("text", (1,), (2,) * tokens, (-0.1,) * tokens, 0.0, True)


def scripted(run, valid: int):
    """Sequences of a step by member: proposals, attempts, trained ones; and the rows. Of each prompt ``valid`` proposals are problems."""
    play, matchups = run.config.selfplay, match(run.population, run.config, 1)
    proposals = []
    for request in proposal_requests(run, 1):
        for sample in range(play.samples_per_prompt):
            pair = (Example("1", "1"),)
            problem = Problem(request.sample_id(sample), request.task, "def f(a):\n    return a", pair, pair, "message", request.author, 1)
            proposals.append(
                Proposal(request.author, request.task, request.group, said(1 + sample), True, problem if sample < valid else None)
            )
    requests, trained = student_requests(run, 1, matchups, proposals)
    attempts = [
        Attempt(request.student, request.problem, said(1 + number), True, number % 2 == 0, from_buffer=request.from_buffer)
        for request in requests
        for number in range(request.samples)
    ]
    outcome = cross_evaluate(run.config, matchups, proposals, attempts, trained)
    rows = train_rows(run.config.learner, run.population, Rollouts(proposals, attempts, trained, {}, {}, {}), outcome)
    places = {member.slot: member.id for member in run.population.members}
    proposed, attempted = Counter(proposal.author for proposal in proposals), Counter(attempt.student for attempt in attempts)
    return proposed, attempted, Counter(places[row.slot] for row in rows), rows


@pytest.fixture(scope="module")
def make_run():
    def make(population: PopulationConfig, prompts: int = PROMPTS):
        play = replace(SMALL.selfplay, prompts_per_type=prompts, samples_per_prompt=SAMPLES, rho_samples=ATTEMPTS)
        return build_run(replace(SMALL, population=population, selfplay=play))

    return make


@pytest.mark.parametrize("valid", [0, 2, 3])
def test_a_student_attempts_all_valid_problems_and_trains_on_as_many_as_there_are_prompts(make_run, valid):
    with make_run(PopulationConfig(2, 2)) as run:
        fill_buffer(run)
        proposed, attempted, trained, _ = scripted(run, valid)
    prompts = 3 * PROMPTS
    assert proposed == dict.fromkeys(("T0", "T1"), prompts * SAMPLES)
    assert attempted == dict.fromkeys(("S0", "S1"), max(prompts * valid, prompts) * ATTEMPTS)
    assert trained == {"T0": prompts * SAMPLES, "T1": prompts * SAMPLES, "S0": prompts * ATTEMPTS, "S1": prompts * ATTEMPTS}


@pytest.mark.parametrize(("prompts", "members"), [(PROMPTS, 2), (PROMPTS // 2, 1)])
def test_the_single_agent_trains_on_the_sequences_of_two_members_and_with_half_the_prompts_of_one(make_run, prompts, members):
    with make_run(PopulationConfig(single_agent=True), prompts) as run:
        fill_buffer(run)
        proposed, attempted, trained, _ = scripted(run, 2)
    assert proposed == {"A0": 3 * prompts * SAMPLES} and attempted == {"A0": 3 * prompts * 2 * ATTEMPTS}
    assert trained == {"A0": 3 * prompts * (SAMPLES + ATTEMPTS)}
    assert trained["A0"] == members * 3 * PROMPTS * (SAMPLES + ATTEMPTS) / 2


def test_a_child_takes_part_in_the_step_after_its_birth(make_run):
    with make_run(PopulationConfig(2, 2)) as run:
        fill_buffer(run)
        evolve_if_due(run, SMALL.evolution.every)
        children = {member.id for member in run.population.members if member.lineage.generation}
        _, _, trained, _ = scripted(run, 3)
    prompts = 3 * PROMPTS
    assert {child: trained[child] for child in children} == {"T0": prompts * SAMPLES, "S0": prompts * ATTEMPTS}


def test_a_student_without_a_teacher_trains_on_problems_of_the_buffer(make_run):
    with make_run(PopulationConfig(1, 2)) as run:
        fill_buffer(run)
        (matchup,) = match(run.population, run.config, 1)
        _, attempted, trained, _ = scripted(run, 3)
    (without,) = {"S0", "S1"} - {matchup.student}
    assert attempted == {matchup.student: 3 * PROMPTS * 3 * ATTEMPTS, without: 3 * PROMPTS * ATTEMPTS}
    assert trained[without] == trained[matchup.student] == 3 * PROMPTS * ATTEMPTS


def test_where_the_buffer_lacks_problems_too_each_is_in_the_batch_once_and_the_batch_is_smaller(make_run):
    with make_run(PopulationConfig(2, 2)) as run:
        fill_buffer(run)
        kept = {run.buffer.problems(task)[0].id for task in CODE_TYPES}
        run.buffer.discard({problem.id for task in CODE_TYPES for problem in run.buffer.problems(task)} - kept)
        _, attempted, trained, rows = scripted(run, 0)
    assert attempted == dict.fromkeys(("S0", "S1"), 3 * ATTEMPTS) and trained["S0"] == trained["S1"] == 3 * ATTEMPTS
    weights = {row.slot: abs(row.advantage) for row in rows}
    assert not weights[0] and weights[2], "teachers whose proposals are all invalid learn nothing, students learn from what there is"
