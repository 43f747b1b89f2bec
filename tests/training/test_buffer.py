"""The shared buffer: no repeats, the oldest goes first, references without replacement, checkpoints; what a step stores."""

import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from populora.core.rng import stream
from populora.core.types import CODE_TYPES, Example, Problem, TaskType, task_types
from populora.domains.registry import load_domain
from populora.tasks.coverage import Archive
from populora.training.buffer import ProblemBuffer
from populora.training.step import store_problems


def problem(index, task=TaskType.CODE_O, message=""):
    return Problem(f"p{index}", task, f"def f(x):\n    return x + {index}", (Example("1", str(1 + index)),), message=message)


def filled(count, capacity=100, task=TaskType.CODE_O):
    buffer = ProblemBuffer(capacity, CODE_TYPES)
    for index in range(count):
        buffer.add(problem(index, task), f"print-{index}")
    return buffer


def test_a_program_is_stored_once_a_type():
    buffer = filled(1)
    assert not buffer.add(problem(7), "print-0")
    assert buffer.add(problem(0, TaskType.CODE_I), "print-0")
    assert buffer.problems(TaskType.CODE_O) == [problem(0)], "the first one stays, which is older"


def test_the_list_of_problems_follows_every_change_and_one_handed_out_before_stays():
    buffer = filled(2)
    before = buffer.problems(TaskType.CODE_O)
    assert buffer.problems(TaskType.CODE_O) is before
    buffer.add(problem(2), "print-2")
    assert [p.id for p in buffer.problems(TaskType.CODE_O)] == ["p0", "p1", "p2"]
    buffer.discard({"p1"})
    assert [p.id for p in buffer.problems(TaskType.CODE_O)] == ["p0", "p2"]
    buffer.restore(filled(1).state())
    assert [p.id for p in buffer.problems(TaskType.CODE_O)] == ["p0"] and [p.id for p in before] == ["p0", "p1"]


def test_code_f_counts_the_message_too():
    buffer = ProblemBuffer(10, CODE_TYPES)
    assert buffer.add(problem(0, TaskType.CODE_F, "adds"), "same")
    assert buffer.add(problem(0, TaskType.CODE_F, "sums"), "same")
    assert not buffer.add(problem(0, TaskType.CODE_F, "sums"), "same")


def test_code_f_is_the_same_problem_whichever_pairs_are_hidden_and_another_with_other_inputs():
    buffer, (one, two, three) = ProblemBuffer(10, CODE_TYPES), (Example(str(number), str(number + 1)) for number in (1, 2, 3))
    halves = replace(problem(0, TaskType.CODE_F, "adds"), shown=(one,), hidden=(two,))
    assert buffer.add(halves, "same")
    assert not buffer.add(replace(halves, shown=(two,), hidden=(one,)), "same")
    assert buffer.add(replace(halves, hidden=(three,)), "same")


def test_the_oldest_is_dropped_and_may_come_back():
    buffer = filled(5, capacity=3)
    assert [p.id for p in buffer.problems(TaskType.CODE_O)] == ["p2", "p3", "p4"]
    assert buffer.add(problem(0), "print-0")


def test_references_are_distinct_and_as_many_as_there_are():
    buffer = filled(4)
    drawn = buffer.references(TaskType.CODE_O, 6, stream(0, "references"))
    assert sorted(p.id for p in drawn) == ["p0", "p1", "p2", "p3"]
    assert len({p.id for p in buffer.references(TaskType.CODE_O, 3, stream(1, "references"))}) == 3


@pytest.mark.parametrize(("count", "singly"), [(1, 8), (2, 8), (2, 1)])
def test_references_are_uniform(count, singly, monkeypatch):
    monkeypatch.setattr("populora.training.buffer.DRAWN_SINGLY", singly)
    buffer, draws = filled(5), 4000
    rng = stream(0, "references")
    counts = Counter(p.id for _ in range(draws) for p in buffer.references(TaskType.CODE_O, count, rng))
    expected = draws * count / 5  # without replacement; the bound is five standard deviations
    assert set(counts) == {f"p{index}" for index in range(5)} and max(abs(count - expected) for count in counts.values()) < 5 * 31


def test_code_f_draws_its_program_from_both_other_types():
    buffer = filled(1)
    buffer.add(problem(9, TaskType.CODE_I), "print-9")
    drawn = {buffer.references(TaskType.CODE_F, 1, stream(seed, "program"))[0].id for seed in range(30)}
    assert drawn == {"p0", "p9"}


def test_the_program_of_code_f_is_of_its_own_domain():
    buffer = ProblemBuffer(10, task_types(["python", "sql"]))
    for index, task in enumerate((TaskType.CODE_I, TaskType.CODE_O, TaskType("sql_i"), TaskType("sql_o"))):
        buffer.add(problem(index, task), f"print-{index}")
    drawn = {buffer.references(TaskType.CODE_F, 1, stream(seed, "program"))[0].id for seed in range(30)}
    assert drawn == {"p0", "p1"}


def test_state_survives_json():
    buffer = filled(4)
    buffer.add(problem(0, TaskType.CODE_F, "adds"), "same")
    restored = ProblemBuffer(100, CODE_TYPES)
    restored.restore(json.loads(json.dumps(buffer.state())))
    assert all(restored.problems(task) == buffer.problems(task) for task in CODE_TYPES)
    assert restored.state() == buffer.state()


def outcome_of(record, *void) -> Any:
    return SimpleNamespace(teacher_rewards=record.teacher_rewards, void=frozenset(void))


def test_repeats_are_programs_that_the_buffer_held_from_this_step_or_before(make_record):
    run = SimpleNamespace(
        buffer=ProblemBuffer(8, CODE_TYPES), archives={"python": Archive(load_domain("python"))}, valid_counts={}, reward_sums={}
    )
    assert store_problems(run, make_record(1).proposals, outcome_of(make_record(1))) == {"1-1"}  # the second of two equal code_o programs
    assert store_problems(run, make_record(2).proposals, outcome_of(make_record(2))) == {"2-0", "2-1", "2-2", "2-3"}
    assert run.valid_counts == {"T0": {"code_o": [4, 4], "code_f": [2, 4]}, "T1": {"code_i": [2, 4]}}
    assert run.archives["python"].summary()["total_problems"] == 6


def test_void_problems_are_neither_stored_nor_repeats_nor_valid_and_leave_the_buffer(make_record):
    run = SimpleNamespace(
        buffer=ProblemBuffer(8, CODE_TYPES), archives={"python": Archive(load_domain("python"))}, valid_counts={}, reward_sums={}
    )
    assert store_problems(run, make_record(1).proposals, outcome_of(make_record(1), "1-1")) == frozenset()
    assert run.archives["python"].summary()["total_problems"] == 2 and run.valid_counts["T0"] == {"code_o": [1, 2], "code_f": [1, 2]}
    later: Any = SimpleNamespace(teacher_rewards=(), void=frozenset({"1-0"}))
    store_problems(run, (), later)
    assert run.buffer.problems(TaskType.CODE_O) == []
