"""Records are read as they were written, and verdicts are counted in every extraction mode."""

from pathlib import Path

import pytest

from populora.core.errors import RunDirectoryError
from populora.evals.eval_records import PRIMARY, EvalModel, Evaluation, Grade, append, modes_of, read_records, score_grades


def test_the_primary_mode_replaces_one_that_a_grader_does_not_have():
    assert Grade("a", True).is_correct("strict") and not Grade("a", False).is_correct("strict")
    partly = Grade("a", True, modes={"strict": False})
    assert not partly.is_correct("strict") and partly.is_correct(PRIMARY)
    grades = {"math500": Grade("a", False, modes={"lenient": True, "strict": False}), "aime24": Grade("a", True)}
    scores = tuple(score_grades("T0", benchmark, [grade], 1) for benchmark, grade in grades.items())
    evaluation = Evaluation("run", (EvalModel("T0", "teacher"),), scores)
    assert modes_of([evaluation]) == ["strict", "lenient"]
    lenient = evaluation.with_mode("lenient").scores_of("T0")
    assert (lenient["math500"].correct, lenient["aime24"].correct) == (1, 1)


def test_a_void_item_counts_neither_as_right_nor_as_wrong_nor_as_missing():
    score = score_grades("T0", "spider", [Grade("a", True), Grade("b", False), Grade("c", False, void=True)], 3)
    assert (score.correct, score.graded, score.items, score.void) == (1, 2, 2, 1) and score.complete and score.rate == 50


def test_of_two_verdicts_the_later_counts_a_cut_line_is_none_and_a_damaged_one_is_named(tmp_path: Path):
    file = tmp_path / "v.jsonl"
    for grade in (Grade("a", False, "wrong"), Grade("a", True, retry="passed"), Grade("b", True)):
        append(file, grade)
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    assert read_records(file, Grade) == {"a": Grade("a", True, retry="passed")}
    assert read_records(file, Grade, repair=True) == {"a": Grade("a", True, retry="passed")} and file.read_bytes() in whole
    for line in (b"{", b"\xff\xfe", b"[1]", b'{"correct": true}'):
        file.write_bytes(whole + line + b"\n")
        with pytest.raises(RunDirectoryError, match=f"'{file}', line 4: expected a grade, got "):
            read_records(file, Grade)
