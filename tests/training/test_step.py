"""The order within a step: what is drawn from the buffer was there when the step began, and no weight changes before the last verdict."""

from dataclasses import dataclass, replace

import pytest
from small_run import SMALL

from populora.core.config import EvaluationConfig, EvolutionConfig, LearnerConfig
from populora.core.types import CODE_TYPES
from populora.runs.step_record import StepRecord
from populora.training.loop import build_run
from populora.training.population import initial_population
from populora.training.seed_buffer import fill_buffer
from populora.training.step import selfplay_step
from populora.training.train_rows import step_scales


@dataclass(frozen=True)
class Step:
    """A step's record, the ids in the buffer before and after it, and each call that was noted with what it returned."""

    record: StepRecord
    before: set[str]
    after: set[str]
    calls: list[tuple[str, list]]


@pytest.fixture(scope="module", params=["reproducible", "off"])
def step(request):
    play = replace(SMALL.selfplay, prompts_per_type=2, max_response_tokens=64, overlap=request.param)
    calls = []

    def note(place, name):
        function = getattr(place, name)

        def noted(*arguments):
            returned = function(*arguments)
            calls.append((name, returned))
            return returned

        setattr(place, name, noted)

    with build_run(replace(SMALL, selfplay=play, evolution=EvolutionConfig(every=0), evaluation=EvaluationConfig())) as run:
        fill_buffer(run)

        def stored():
            return {problem.id for task in CODE_TYPES for problem in run.buffer.problems(task)}

        before = stored()
        for place, name in ((run.buffer, "references"), (run.buffer, "draw"), (run.verifier, "judge"), (run.learner, "update")):
            note(place, name)
        return Step(selfplay_step(run), before, stored(), calls)


def test_references_and_problems_that_fill_a_batch_were_in_the_buffer_when_the_step_began(step):
    drawn = {problem.id for name, problems in step.calls if name in ("references", "draw") for problem in problems}
    assert drawn and drawn <= step.before
    assert {attempt.problem.id for attempt in step.record.attempts if attempt.from_buffer} <= step.before
    assert step.after - step.before, "the problems of the step are stored, but only at its end"


def test_the_special_tokens_of_the_base_are_those_that_no_problem_may_hold():
    with build_run(SMALL) as run:
        found = run.verifier._control_token.fullmatch
    assert found("<pad>") and found("<eos>") and not found("") and not found("def f(")


def test_step_sizes_fall_by_the_steps_of_the_run_and_teachers_have_their_own(monkeypatch):
    learner = replace(SMALL.learner, decay_steps=4, teacher_learning_rate=SMALL.learner.learning_rate / 2)
    with build_run(replace(SMALL, learner=learner, evaluation=EvaluationConfig())) as run:
        fill_buffer(run)
        scales = []
        monkeypatch.setattr(run.learner, "update", lambda rows, by_slot: scales.append(by_slot) or {})
        for _ in range(4):
            selfplay_step(run)
    students = [1.0, 0.75, 0.5, 0.25]
    assert scales == [{0: half / 2, 1: half / 2, 2: half, 3: half} for half in students]


def test_by_default_all_members_have_one_step_size():
    population = initial_population(SMALL)
    assert set(step_scales(LearnerConfig(), population, 7).values()) == {1.0}


def test_no_weight_changes_before_the_last_verdict_is_in(step):
    names = [name for name, _ in step.calls if name in ("judge", "update")]
    assert names[-1] == "update" and names.count("update") == 1
    judged = sum(len(attempts) for name, batch in step.calls if name == "judge" for attempts in batch)
    assert judged == len(step.record.attempts) > 0
