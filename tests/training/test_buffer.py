"""The shared buffer: no repeats, the oldest goes first, references without replacement, state for checkpoints."""

import json

from populora.core.rng import stream
from populora.core.types import Example, Problem, TaskType
from populora.training.buffer import ProblemBuffer


def problem(index, task=TaskType.CODE_O, message=""):
    return Problem(f"p{index}", task, f"def f(x):\n    return x + {index}", (Example("1", str(1 + index)),), message=message)


def filled(count, capacity=100, task=TaskType.CODE_O):
    buffer = ProblemBuffer(capacity)
    for index in range(count):
        buffer.add(problem(index, task), f"print-{index}")
    return buffer


def test_a_program_is_stored_once_a_type():
    buffer = filled(1)
    assert not buffer.add(problem(7), "print-0")
    assert buffer.add(problem(0, TaskType.CODE_I), "print-0")
    assert len(buffer.problems(TaskType.CODE_O)) == 1


def test_code_f_counts_the_message_too():
    buffer = ProblemBuffer(10)
    assert buffer.add(problem(0, TaskType.CODE_F, "adds"), "same")
    assert buffer.add(problem(0, TaskType.CODE_F, "sums"), "same")
    assert not buffer.add(problem(0, TaskType.CODE_F, "sums"), "same")


def test_the_oldest_is_dropped_and_may_come_back():
    buffer = filled(5, capacity=3)
    assert [p.id for p in buffer.problems(TaskType.CODE_O)] == ["p2", "p3", "p4"]
    assert buffer.add(problem(0), "print-0")


def test_references_are_distinct_and_as_many_as_there_are():
    buffer = filled(4)
    drawn = buffer.references(TaskType.CODE_O, 6, stream(0, "references"))
    assert sorted(p.id for p in drawn) == ["p0", "p1", "p2", "p3"]
    assert len({p.id for p in buffer.references(TaskType.CODE_O, 3, stream(1, "references"))}) == 3


def test_code_f_draws_its_program_from_both_other_types():
    buffer = filled(1)
    buffer.add(problem(9, TaskType.CODE_I), "print-9")
    drawn = {buffer.references(TaskType.CODE_F, 1, stream(seed, "program"))[0].id for seed in range(30)}
    assert drawn == {"p0", "p9"}


def test_void_problems_are_dropped():
    buffer = filled(3)
    buffer.discard({"p1"})
    assert [p.id for p in buffer.problems(TaskType.CODE_O)] == ["p0", "p2"]


def test_state_survives_json():
    buffer = filled(4)
    buffer.add(problem(0, TaskType.CODE_F, "adds"), "same")
    restored = ProblemBuffer(100)
    restored.restore(json.loads(json.dumps(buffer.state())))
    assert all(restored.problems(task) == buffer.problems(task) for task in TaskType)
    assert restored.state() == buffer.state()
