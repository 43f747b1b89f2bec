"""What a step leaves in the buffer, the archive and the counts."""

from types import SimpleNamespace

from populora.tasks.coverage import Archive
from populora.training.buffer import ProblemBuffer
from populora.training.step import store


def stored(record, run):
    outcome = SimpleNamespace(void=tuple(False for _ in record.proposals))
    return store(run, record.proposals, (), record.measures, outcome)


def test_repeats_are_programs_that_the_buffer_held_from_this_step_or_before(make_record):
    run = SimpleNamespace(buffer=ProblemBuffer(8), archive=Archive(), valid_counts={})
    assert stored(make_record(1), run) == {"1-1"}  # the second of two equal code_o programs
    assert stored(make_record(2), run) == {"2-0", "2-1", "2-2", "2-3"}
    assert run.valid_counts == {"T0": [6, 8], "T1": [2, 4]} and run.archive.summary()["total_problems"] == 6


def test_void_problems_are_neither_stored_nor_repeats(make_record):
    run = SimpleNamespace(buffer=ProblemBuffer(8), archive=Archive(), valid_counts={})
    record = make_record(1)
    outcome = SimpleNamespace(void=(False, True, False, False, False, False))
    assert store(run, record.proposals, (), record.measures, outcome) == frozenset()
    assert run.archive.summary()["total_problems"] == 2
