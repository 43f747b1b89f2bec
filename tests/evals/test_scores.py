"""Scores from files of verdicts: nothing is counted that is not there, and what is wrong is named with its line."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora.core.errors import RunDirectoryError
from populora.evals.records import EvalModel, Grade, append, read_grades
from populora.evals.scores import PRIMARY, Evaluation, is_correct, modes_of, score_grades, with_mode


def write(file: Path, *grades: Grade) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    for grade in grades:
        append(file, grade)
    return file


def test_the_primary_mode_replaces_one_that_a_grader_does_not_have():
    assert is_correct(Grade("a", True), "strict") and not is_correct(Grade("a", False), "strict")
    assert not is_correct(Grade("a", True, modes={"strict": False}), "strict") and is_correct(
        Grade("a", True, modes={"strict": False}), PRIMARY
    )


def test_another_mode_is_counted_where_there_is_one():
    scores = [
        score_grades("T0", "minerva_math", [Grade("a", False, modes={"fixed": True, "strict": False})], 1),
        score_grades("T0", "aime24", [Grade("a", True)], 1),
    ]
    evaluation = Evaluation("run", (EvalModel("T0", "teacher"),), tuple(scores))
    assert modes_of([evaluation]) == ["strict", "fixed"]
    fixed = with_mode(evaluation, "fixed").scores_of("T0")
    assert (fixed["minerva_math"].correct, fixed["aime24"].correct) == (1, 1)


def test_a_last_line_that_a_kill_cut_short_is_no_verdict(tmp_path: Path):
    file = write(tmp_path / "v.jsonl", Grade("a", True), Grade("b", True))
    file.write_bytes(file.read_bytes()[:-5])
    assert list(read_grades(file)) == ["a"]


@pytest.mark.parametrize(
    "line, said",
    [
        ("{", "expected a verdict"),
        ("[1]", "has no attribute"),
        ('{"correct": true}', "'item_id' is None"),
        ('{"item_id": 3, "correct": true}', "'item_id' is 3"),
        ('{"item_id": "b", "correct": "yes"}', "'correct' is 'yes'"),
        ('{"item_id": "b", "correct": 1}', "'correct' is 1"),
        ('{"item_id": "b", "correct": true, "modes": 1}', "'modes' is 1"),
    ],
)
def test_a_line_that_is_no_verdict_is_named(tmp_path: Path, line: str, said: str):
    file = write(tmp_path / "v.jsonl", Grade("a", True))
    file.write_bytes(file.read_bytes() + line.encode() + b"\n")
    with pytest.raises(RunDirectoryError, match="line 2") as error:
        read_grades(file)
    assert said in str(error.value) and str(file) in str(error.value)


def test_of_two_verdicts_on_an_item_the_later_counts(tmp_path: Path):
    file = write(tmp_path / "v.jsonl", Grade("a", False, "wrong"), Grade("a", True, retry="passed"))
    assert read_grades(file) == {"a": Grade("a", True, retry="passed")}


def test_a_file_that_is_no_text_is_named(tmp_path: Path):
    file = tmp_path / "v.jsonl"
    file.write_bytes(b"\xff\xfe\n")
    with pytest.raises(RunDirectoryError, match="line 1"):
        read_grades(file)


def test_more_verdicts_than_items_are_refused():
    with pytest.raises(RunDirectoryError, match="at most 1 items, 'T0' has 2"):
        score_grades("T0", "aime24", [Grade("a", True), Grade("b", True)], 1)


@given(st.dictionaries(st.text(), st.tuples(st.booleans(), st.dictionaries(st.sampled_from(["strict", "lenient"]), st.booleans()))))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, verdicts: dict):
    grades = [Grade(item, correct, modes=modes) for item, (correct, modes) in verdicts.items()]
    file = tmp_path_factory.mktemp("verdicts") / "v.jsonl"
    file.write_bytes(b"".join(json.dumps(asdict(grade)).encode() + b"\n" for grade in grades))
    assert list(read_grades(file).values()) == grades
    assert score_grades("T0", "gsm8k", grades, len(grades)).correct == sum(grade.correct for grade in grades)
