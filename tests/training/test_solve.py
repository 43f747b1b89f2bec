"""Which problems a student attempts and trains on (readings 4 and 5), and that rollouts are samples at temperature 1."""

from collections import Counter
from dataclasses import replace

import pytest
from small_run import SMALL

from populora.core.types import TASK_TYPES, Example, Generation, Matchup, Problem, Proposal, TaskType
from populora.training.loop import build_run
from populora.training.propose import proposal_requests
from populora.training.rollout import RolloutFeed
from populora.training.seed_buffer import fill_buffer
from populora.training.solve import student_requests

PROMPTS = 3
SAID = Generation("text", (1,), (2,), (-0.1,), 0.0, True)


@pytest.fixture(scope="module")
def run():
    with build_run(replace(SMALL, selfplay=replace(SMALL.selfplay, prompts_per_type=PROMPTS))) as made:
        fill_buffer(made)
        yield made


def proposals(author: str, task: TaskType, groups: dict[int, int]) -> list[Proposal]:
    """Valid proposals: so many of each prompt."""
    names = [(group, f"{author}-{task.value}-{group}-{number}") for group, count in groups.items() for number in range(count)]
    problem = Problem("", task, "def f(a):\n    return a", (Example("1", "1"),), (Example("2", "2"),), "message", author)
    return [Proposal(author, task, group, SAID, True, replace(problem, id=name)) for group, name in names]


def test_a_student_attempts_every_problem_of_its_teacher_and_trains_on_those_of_different_prompts_first(run):
    offered = [proposal for task in TASK_TYPES for proposal in proposals("T0", task, {0: 5, 1: 1, 2: 1})]
    others = proposals("T1", TaskType.CODE_O, {9: 4})
    requests, trained = student_requests(run, 1, [Matchup("T0", "S0", 0.5)], [*offered, *others])
    assert {request.problem.id for request in requests if request.student == "S0" and not request.from_buffer} == {
        proposal.problem.id for proposal in offered
    }
    for task in TASK_TYPES:
        groups = [proposal.group for proposal in offered if ("S0", proposal.problem.id) in trained and proposal.task is task]
        assert sorted(groups) == [0, 1, 2]


def test_a_batch_that_lacks_problems_is_filled_from_the_buffer(run):
    offered = proposals("T0", TaskType.CODE_O, {0: 1})
    requests, trained = student_requests(run, 1, [Matchup("T0", "S0", 0.5)], offered)
    batch = [request for request in requests if request.student == "S0"]
    assert Counter(request.problem.task for request in batch) == dict.fromkeys(TASK_TYPES, PROMPTS)
    assert sum(request.from_buffer for request in batch) == 3 * PROMPTS - 1 and len(trained) == 2 * 3 * PROMPTS
    stored = {problem.id for task in TASK_TYPES for problem in run.buffer.problems(task)}
    assert {request.problem.id for request in batch if request.from_buffer} <= stored


def test_a_teacher_has_as_many_prompts_of_each_type(run):
    prompts = Counter((request.author, request.task) for request in proposal_requests(run, 1))
    assert prompts == {(teacher, task): PROMPTS for teacher in ("T0", "T1") for task in TASK_TYPES}


def test_rollouts_are_sampled_at_temperature_1(run):
    asked: list[float] = []

    class Watched:
        independent = True

        def generate(self, requests, max_tokens, temperature, stop):
            asked.append(temperature)
            return [[SAID]] * len(requests)

        def stream(self, source, max_tokens, temperature, stop):
            asked.append(temperature)
            return iter(())

    watched = replace(run, sampler=Watched())
    matchups = [Matchup("T0", "S0", 0.5)]
    watched.sample(proposal_requests(run, 1))
    list(watched.stream(RolloutFeed(watched, 1, matchups)))
    assert asked == [1.0, 1.0]
