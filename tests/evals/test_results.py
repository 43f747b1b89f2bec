"""Scores from files of verdicts: nothing is counted that is not there, and what is wrong is named with its line."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora.core.errors import ConfigError, RunDirectoryError
from populora.evals.records import Grade, append
from populora.evals.results import (
    HEADLINE,
    Source,
    read_as,
    read_evaluation,
    read_grades,
    readings_of,
    right,
    score_of,
    verdict_file,
)


def write(file: Path, *grades: Grade) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    for grade in grades:
        append(file, grade)
    return file


def test_scores_count_items_and_readings_of_each_source(tmp_path: Path):
    grades = [Grade("a", True, readings={"strict": False, "lenient": True}), Grade("b", False, "wrong", readings={"strict": False})]
    write(verdict_file(tmp_path, "aime24", "T0"), *grades)
    evaluation = read_evaluation(tmp_path, "run", [Source("T0", "teacher"), Source("base", "base")], {"aime24": 30, "gsm8k": 1319})
    score = evaluation.of("T0")["aime24"]
    assert (score.correct, score.graded, score.items, score.readings) == (1, 2, 30, {"strict": 0, "lenient": 1})
    assert not score.complete and score.rate == 50
    assert evaluation.of("base") == {} and len(evaluation.scores) == 4  # what was asked for and has no verdict is known, with 0 graded


def test_a_reading_that_a_grader_does_not_know_is_what_its_headline_says():
    assert right(Grade("a", True), "strict") and not right(Grade("a", False), "strict")
    assert not right(Grade("a", True, readings={"strict": False}), "strict") and right(
        Grade("a", True, readings={"strict": False}), HEADLINE
    )


def test_another_reading_is_counted_where_there_is_one(tmp_path: Path):
    write(verdict_file(tmp_path, "minerva_math", "T0"), Grade("a", False, readings={"fixed": True, "strict": False}))
    write(verdict_file(tmp_path, "aime24", "T0"), Grade("a", True))
    evaluation = read_evaluation(tmp_path, "run", [Source("T0", "teacher")], {"minerva_math": 1, "aime24": 1})
    assert readings_of([evaluation]) == ["strict", "fixed"]
    fixed = read_as(evaluation, "fixed").of("T0")
    assert (fixed["minerva_math"].correct, fixed["aime24"].correct) == (1, 1)


def test_a_last_line_that_a_kill_cut_short_is_no_verdict(tmp_path: Path):
    file = write(tmp_path / "v.jsonl", Grade("a", True), Grade("b", True))
    file.write_bytes(file.read_bytes()[:-5])
    assert list(read_grades(file)) == ["a"]


@pytest.mark.parametrize(
    "line, said",
    [
        ("{", "as JSON"),
        ("[1]", "it is list"),
        ('{"correct": true}', "'item_id' is None"),
        ('{"item_id": 3, "correct": true}', "'item_id' is 3"),
        ('{"item_id": "b", "correct": "yes"}', "'correct' is 'yes'"),
        ('{"item_id": "b", "correct": 1}', "'correct' is 1"),
        ('{"item_id": "b", "correct": true, "readings": {"strict": 1}}', "'readings' is"),
    ],
)
def test_a_line_that_is_no_verdict_is_named(tmp_path: Path, line: str, said: str):
    file = write(tmp_path / "v.jsonl", Grade("a", True))
    file.write_bytes(file.read_bytes() + line.encode() + b"\n")
    with pytest.raises(RunDirectoryError, match="line 2") as error:
        read_grades(file)
    assert said in str(error.value) and str(file) in str(error.value)


def test_of_two_verdicts_on_an_item_the_later_counts(tmp_path: Path):
    file = write(tmp_path / "v.jsonl", Grade("a", False, "wrong"), Grade("a", True, again="overturned"))
    assert read_grades(file) == {"a": Grade("a", True, again="overturned")}


def test_a_file_that_is_no_text_is_named(tmp_path: Path):
    file = tmp_path / "v.jsonl"
    file.write_bytes(b"\xff\xfe\n")
    with pytest.raises(RunDirectoryError, match="line 1"):
        read_grades(file)


def test_more_verdicts_than_items_a_source_named_twice_and_an_unknown_benchmark_are_refused(tmp_path: Path):
    with pytest.raises(RunDirectoryError, match="at most 1 items, 'T0' has 2"):
        score_of("T0", "aime24", [Grade("a", True), Grade("b", True)], 1)
    with pytest.raises(ConfigError, match="got T0 more than once"):
        read_evaluation(tmp_path, "run", [Source("T0", "teacher"), Source("T0", "student")], {})
    with pytest.raises(ConfigError, match="unknown benchmark 'aime23'"):
        read_evaluation(tmp_path, "run", [Source("T0", "teacher")], {"aime23": 30})


@given(st.dictionaries(st.text(), st.tuples(st.booleans(), st.dictionaries(st.sampled_from(["strict", "lenient"]), st.booleans()))))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, verdicts: dict):
    grades = [Grade(item, correct, readings=readings) for item, (correct, readings) in verdicts.items()]
    file = tmp_path_factory.mktemp("verdicts") / "v.jsonl"
    file.write_bytes(b"".join(json.dumps(asdict(grade)).encode() + b"\n" for grade in grades))
    assert list(read_grades(file).values()) == grades
    assert score_of("T0", "gsm8k", grades, len(grades)).correct == sum(grade.correct for grade in grades)


def test_scores_tables_and_comparisons_need_no_torch():
    modules = "comparison comparison_report filing latex layout paired published report results tables".split()
    script = "import sys\n" + "".join(f"import populora.evals.{name}\n" for name in modules) + "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
