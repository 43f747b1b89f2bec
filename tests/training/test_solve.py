"""Which problems a student attempts and trains on (readings 4 and 5), and that rollouts are samples at temperature 1."""

from collections import Counter
from dataclasses import replace

import pytest
from small_run import SMALL

from populora.core.config import PopulationConfig
from populora.core.errors import PopuloraError
from populora.core.types import CODE_TYPES, Example, Generation, Matchup, Problem, Proposal, TaskType
from populora.training.buffer import ProblemBuffer
from populora.training.loop import build_run
from populora.training.propose import proposal_requests
from populora.training.rollout import RolloutFeed
from populora.training.seed_buffer import fill_buffer
from populora.training.solve import student_requests

PROMPTS = 3
AUTHORS = (("T0", 1), ("T1", 1), ("T0", 2))
SAID = Generation("text", (1,), (2,), (-0.1,), 0.0, True)


@pytest.fixture(scope="module")
def run():
    with build_run(replace(SMALL, selfplay=replace(SMALL.selfplay, prompts_per_type=PROMPTS))) as made:
        fill_buffer(made)
        yield made


def proposals(author: str, task: TaskType, groups: dict[int, int]) -> list[Proposal]:
    """Valid proposals: so many of each prompt."""
    names = [(group, f"{author}-{task}-{group}-{number}") for group, count in groups.items() for number in range(count)]
    problem = Problem("", task, "def f(a):\n    return a", (Example("1", "1"),), (Example("2", "2"),), "message", author)
    return [Proposal(author, task, group, SAID, True, replace(problem, id=name)) for group, name in names]


def test_a_student_attempts_every_problem_of_its_teacher_and_trains_on_those_of_different_prompts_first(run):
    offered = [proposal for task in CODE_TYPES for proposal in proposals("T0", task, {0: 5, 1: 1, 2: 1})]
    others = proposals("T1", TaskType.CODE_O, {9: 4})
    requests, trained = student_requests(run, 1, [Matchup("T0", "S0", 0.5), Matchup("T1", "S1", 0.5)], [*offered, *others])
    assert {request.problem.id for request in requests if request.student == "S0" and not request.from_buffer} == {
        proposal.problem.id for proposal in offered
    }
    for task in CODE_TYPES:
        groups = [proposal.group for proposal in offered if ("S0", proposal.problem.id) in trained and proposal.task is task]
        assert sorted(groups) == [0, 1, 2]


def test_a_batch_that_lacks_problems_is_filled_from_the_buffer(run):
    offered = proposals("T0", TaskType.CODE_O, {0: 1})
    requests, trained = student_requests(run, 1, [Matchup("T0", "S0", 0.5)], offered)
    batch = [request for request in requests if request.student == "S0"]
    assert Counter(request.problem.task for request in batch) == dict.fromkeys(CODE_TYPES, PROMPTS)
    assert sum(request.from_buffer for request in batch) == 3 * PROMPTS - 1 and len(trained) == 2 * 3 * PROMPTS
    stored = {problem.id for task in CODE_TYPES for problem in run.buffer.problems(task)}
    assert {request.problem.id for request in batch if request.from_buffer} <= stored


def test_a_share_of_the_batch_comes_from_the_buffer_although_the_teacher_gave_enough(run):
    third = replace(run, config=replace(run.config, selfplay=replace(run.config.selfplay, buffer_share=0.33)))
    offered = [proposal for task in CODE_TYPES for proposal in proposals("T0", task, dict.fromkeys(range(5), 1))]
    requests, trained = student_requests(third, 1, [Matchup("T0", "S0", 0.5)], offered)
    batch = [request for request in requests if request.student == "S0"]
    assert Counter(request.problem.task for request in batch if request.from_buffer) == dict.fromkeys(CODE_TYPES, 1)
    assert sum(not request.from_buffer for request in batch) == len(offered), "rho is measured for all of them"
    assert sum(student == "S0" for student, _ in trained) == 3 * PROMPTS


def test_the_teacher_s_problems_stand_in_where_the_buffer_has_too_few(run):
    selfplay = replace(run.config.selfplay, buffer_share=1.0)
    empty = replace(run, config=replace(run.config, selfplay=selfplay), buffer=ProblemBuffer(64, CODE_TYPES))
    offered = [proposal for task in CODE_TYPES for proposal in proposals("T0", task, dict.fromkeys(range(5), 1))]
    requests, trained = student_requests(empty, 1, [Matchup("T0", "S0", 0.5)], offered)
    assert not any(request.from_buffer for request in requests) and sum(student == "S0" for student, _ in trained) == 3 * PROMPTS


def test_a_student_trains_on_as_many_problems_as_the_settings_say(run):
    several = replace(run, config=replace(run.config, selfplay=replace(run.config.selfplay, train_problems=5)))
    offered = proposals("T0", TaskType.CODE_O, {0: 4, 1: 4})
    requests, trained = student_requests(several, 1, [Matchup("T0", "S0", 0.5)], offered)
    of_teacher = [proposal for proposal in offered if ("S0", proposal.problem.id) in trained]
    assert len(of_teacher) == 5 and {proposal.group for proposal in of_teacher} == {0, 1}
    assert sum(student == "S0" for student, _ in trained) == 3 * 5
    assert sum(request.student == "S0" and not request.from_buffer for request in requests) == len(offered)


@pytest.fixture(scope="module")
def agent():
    """A single agent with the schedule of Absolute Zero. Its buffer holds seeds, and of step 4 two problems of code_o, four of code_f."""
    selfplay = replace(SMALL.selfplay, prompts_per_type=PROMPTS, previous_step_attempts=1)
    with build_run(replace(SMALL, population=PopulationConfig(single_agent=True), selfplay=selfplay)) as made:
        fill_buffer(made)
        for task, count in ((TaskType.CODE_O, 2), (TaskType.CODE_F, 4)):
            for number, proposal in enumerate(proposals("A0", task, dict.fromkeys(range(count), 1))):
                made.buffer.add(replace(proposal.problem, id=f"old-{task}-{number}", step=4), f"{task}-{number}")
        yield made


@pytest.mark.parametrize(("step", "fresh"), [(5, {"code_i": 0, "code_o": 2, "code_f": 3}), (6, {}), (1, {})])
def test_by_azrs_schedule_the_agent_trains_on_problems_of_the_step_before_and_then_on_any(agent, step, fresh):
    offered = [proposal for task in CODE_TYPES for proposal in proposals("A0", task, {0: 1, 1: 1, 2: 1, 3: 1})]
    requests, trained = student_requests(agent, step, [Matchup("A0", "A0", 0.5)], offered)
    rated, practised = ([request for request in requests if request.from_buffer is kind] for kind in (False, True))
    assert [request.problem for request in rated] == [proposal.problem for proposal in offered]
    assert {request.samples for request in rated} == {SMALL.selfplay.rho_samples} and {request.samples for request in practised} == {1}
    assert trained == {("A0", request.problem.id) for request in practised}
    assert Counter(request.problem.task for request in practised) == dict.fromkeys(CODE_TYPES, PROMPTS)
    if fresh:
        assert Counter(request.problem.task for request in practised if request.problem.step == 4) == Counter(fresh)


def test_other_steps_draw_other_problems_of_the_buffer(agent):
    drawn = [student_requests(agent, step, [Matchup("A0", "A0", 0.5)], [])[0] for step in (7, 7, 8)]
    ids = [[request.problem.id for request in requests] for requests in drawn]
    assert ids[0] == ids[1] != ids[2]


def test_a_teacher_has_as_many_prompts_of_each_type(run):
    prompts = Counter((request.author, request.task) for request in proposal_requests(run, 1))
    assert prompts == {(teacher, task): PROMPTS for teacher in ("T0", "T1") for task in CODE_TYPES}


def test_no_two_prompts_of_a_run_are_sampled_from_one_stream(run):
    """Nor the same problem of the buffer, attempted by two students in two steps."""
    few = ProblemBuffer(64, CODE_TYPES)
    for task in CODE_TYPES:
        for number, problem in enumerate(run.buffer.problems(task)[:PROMPTS]):
            few.add(problem, str(number))
    small = replace(run, buffer=few)
    matchups = [Matchup("T0", "S0", 0.5), Matchup("T1", "S1", 0.5)]
    requests = [request for step in (1, 2) for request in proposal_requests(small, step)]
    requests += [request for step in (1, 2) for request in student_requests(small, step, matchups, [])[0]]
    assert len({request.key for request in requests}) == len(requests) == 2 * 2 * 2 * 3 * PROMPTS


def test_members_draw_their_own_references_and_their_own_problems_of_the_buffer(run):
    """And the references of two steps differ."""
    shown = [[request.source.id for request in proposal_requests(run, step) if request.author == name] for name, step in AUTHORS]
    assert len(set(map(tuple, shown))) == len(AUTHORS)
    requests, _ = student_requests(run, 1, [Matchup("T0", "S0", 0.5), Matchup("T1", "S1", 0.5)], [])
    of_students = [{request.problem.id for request in requests if request.student == name} for name in ("S0", "S1")]
    assert of_students[0] != of_students[1]


def test_problems_of_the_buffer_whose_prompts_do_not_fit_are_passed_over(run):
    fitting = {run.solve_prompt(problem) for problem in run.buffer.problems(TaskType.CODE_O)[::2]}
    tight = replace(run, fits=lambda prompt: prompt in fitting)
    requests, _ = student_requests(tight, 1, [Matchup("T0", "S0", 0.5)], [])
    filled = [request.prompt for request in requests if request.student == "S0"]
    assert len(filled) == PROMPTS and set(filled) <= fitting


def test_a_proposer_is_shown_fewer_references_where_no_prompt_with_all_of_them_fits(run):
    three = replace(run, prompts={"python": replace(run.prompts["python"], references=3)})
    for fits, most in ((lambda prompt: True, 3), (lambda prompt: prompt.count("```python") < 2, 1)):
        requests = proposal_requests(replace(three, fits=fits), 1)
        assert {request.prompt.count("```python") for request in requests if request.task is TaskType.CODE_O} == {most}


def test_a_buffer_without_problems_to_show_is_one_clear_error(run):
    with pytest.raises(PopuloraError, match="no problem of code_i to show"):
        proposal_requests(replace(run, buffer=ProblemBuffer(8, CODE_TYPES)), 1)


@pytest.fixture
def asked(run):
    """Longest response and temperature of the calls that a step makes of the sampler."""
    calls: list[tuple[int, float]] = []

    class Watched:
        independent = True

        def generate(self, requests, max_tokens, temperature, stop):
            calls.append((max_tokens, temperature))
            return [[SAID]] * len(requests)

        def stream(self, source, max_tokens, temperature, stop):
            calls.append((max_tokens, temperature))
            return iter(())

    watched = replace(run, sampler=Watched())
    watched.sample(proposal_requests(run, 1))
    list(watched.stream(RolloutFeed(watched, 1, [Matchup("T0", "S0", 0.5)])))
    return calls


def test_rollouts_are_sampled_at_temperature_1(asked):
    assert [temperature for _, temperature in asked] == [1.0, 1.0]


def test_no_response_is_longer_than_the_settings_allow(asked):
    assert [max_tokens for max_tokens, _ in asked] == [SMALL.selfplay.max_response_tokens] * 2
