"""Files of completions to files of verdicts: everything that can be wrong with them is named, and the rest is graded."""

import json
import re

import pytest

from populora.cli.main import main
from populora.evals import grading
from populora.evals.eval_records import Grade
from populora.evals.graders import code

ITEMS = [{"id": f"sample_{n}", "code": f"def f(x):\n    return x + {n}", "input": "1", "output": str(1 + n)} for n in range(6)]


@pytest.fixture
def files(tmp_path):
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(item) + "\n" for item in ITEMS))

    def write(*lines):
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        (tmp_path / "completions.jsonl").write_text("".join(text + "\n" for text in texts))
        return tmp_path

    return write


def grade(folder, *more, name="cruxeval_output"):
    arguments = ["evaluate", "grade", name, str(folder / "completions.jsonl"), "--data", str(folder / "data.jsonl")]
    return main([*arguments, "--out", str(folder / "verdicts.jsonl"), "--allow-weak", *more])


def verdicts(folder):
    rows = [json.loads(line) for line in (folder / "verdicts.jsonl").read_text().splitlines()]
    return {row["item_id"]: (row["correct"], row["reason"]) for row in rows}


def right(n):
    return {"item_id": f"sample_{n}", "completion": str(1 + n)}


def test_bad_lines_are_named_by_their_number_and_the_rest_is_graded(files, capsys):
    folder = files(
        right(0), right(1), {**right(1), "completion": "0"}, {"item_id": "sample_2", "completion": ""},
        {"item_id": "sample_3", "completion": "x" * 10_000_000}, {"item_id": "sample_99", "completion": "1"},
        '{"item_id": "sample_4", "completion": ', {"item_id": "sample_4"}, "[1]", {"item_id": "sample_4", "completion": 5},
    )  # fmt: skip
    assert grade(folder) == 1
    assert verdicts(folder) == {
        "sample_0": (True, ""), "sample_1": (True, ""), "sample_2": (False, "no_answer"), "sample_3": (False, "too_long"),
        "sample_4": (False, "missing"), "sample_5": (False, "missing"),
    }  # fmt: skip
    errors = capsys.readouterr().err
    for complaint in (
        "line 3: item 'sample_1' has a completion already", "line 6: there is no item 'sample_99'", "line 7: no JSON",
        'line 8: expected an object with the texts "item_id" and "completion"', "line 9: expected an object", "line 10: expected an object",
        "2 items have no completion and count as wrong: sample_4, sample_5", "not the pinned cruxeval_output",
    ):  # fmt: skip
        assert complaint in errors


def test_work_that_was_stopped_goes_on_where_it_was(files, monkeypatch):
    folder = files(*[right(n) for n in range(6)])
    grade(folder)
    whole = (folder / "verdicts.jsonl").read_bytes()
    first_half = b"".join(whole.splitlines(keepends=True)[:3])
    (folder / "verdicts.jsonl").write_bytes(first_half + whole.splitlines()[3][:20])
    seen, grade_item = [], grading._grade_item
    monkeypatch.setattr(grading, "_grade_item", lambda job, item, pool: seen.append(item.id) or grade_item(job, item, pool))
    assert grade(folder) == 0
    assert sorted(seen) == ["sample_3", "sample_4", "sample_5"]
    assert (folder / "verdicts.jsonl").read_bytes() == whole


def test_another_completion_or_another_data_file_is_graded_anew(files):
    folder = files(*[right(n) for n in range(6)])
    grade(folder)
    (folder / "completions.jsonl").write_text((folder / "completions.jsonl").read_text().replace('"1"', '"7"'))
    grade(folder)
    assert verdicts(folder)["sample_0"] == (False, "wrong")
    (folder / "data.jsonl").write_text((folder / "data.jsonl").read_text().replace('"output": "1"', '"output": "7"'))
    grade(folder)
    assert verdicts(folder)["sample_0"] == (True, "")


def test_what_fails_is_graded_once_more_alone_and_what_then_passes_is_told(files, monkeypatch, capsys):
    folder, seen = files(*[right(n) for n in range(6)]), []

    def at_first_too_slow(pool, benchmark, item, text):
        seen.append(item.id)
        slow = (item.id == "sample_2" and seen.count(item.id) == 1) or item.id == "sample_4"
        return Grade(item.id, not slow, "out_of_resources" if slow else "", modes={"strict": not slow})

    monkeypatch.setitem(grading.GRADERS, "cruxeval", grading.GraderSettings(at_first_too_slow, code.LIMITS))
    assert grade(folder) == 0
    assert verdicts(folder)["sample_2"] == (True, "") and verdicts(folder)["sample_4"] == (False, "out_of_resources")
    assert seen[-2:] == ["sample_2", "sample_4"] and len(seen) == 8
    assert "passed when graded alone, after a failure: sample_2" in capsys.readouterr().err
    summary = json.loads((folder / "verdicts.json").read_text())
    assert summary["passed_on_retry"] == ["sample_2"] and summary["correct"] == 5 and summary["reasons"] == {"out_of_resources": 1}
    assert summary["facts"]["versions"]["populora"] and summary["facts"]["limits"]["cpu_seconds"] and summary["machine"]["processor"]


def test_what_is_right_is_not_graded_again_whatever_another_mode_says(files, monkeypatch):
    folder, seen = files(right(0)), []

    def in_one_mode(pool, benchmark, item, text):
        seen.append(item.id)
        correct = item.id == "sample_0" and seen.count(item.id) == 1
        return Grade(item.id, correct, "" if correct else "out_of_resources", modes={"strict": False, "lenient": correct})

    monkeypatch.setitem(grading.GRADERS, "cruxeval", grading.GraderSettings(in_one_mode, code.LIMITS))
    assert grade(folder) == 1 and seen.count("sample_0") == 1
    assert verdicts(folder)["sample_0"] == (True, "")


def test_grading_that_was_stopped_between_its_two_files_begins_again(files):
    folder = files(*[right(n) for n in range(6)])
    (folder / "verdicts.jsonl").touch()
    assert grade(folder) == 0 and all(correct for correct, _ in verdicts(folder).values())


def test_the_data_of_a_file_may_be_in_a_folder_with_those_of_other_benchmarks(files):
    folder = files(*map(right, range(len(ITEMS))))
    (folder / "data.jsonl").rename(folder / "cruxeval.jsonl")
    arguments = ["evaluate", "grade", "cruxeval_output", str(folder / "completions.jsonl"), "--data", str(folder)]
    assert main([*arguments, "--out", str(folder / "verdicts.jsonl"), "--allow-weak"]) == 0
    assert verdicts(folder) == {f"sample_{n}": (True, "") for n in range(len(ITEMS))}


@pytest.mark.parametrize("out", ["completions.jsonl", "verdicts.json", "mine.jsonl", "folder"])
def test_nothing_but_verdicts_is_written_over(files, out, capsys):
    folder = files(right(0))
    (folder / "mine.json").write_text('{"mine": 1}')
    (folder / "folder").mkdir()
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    arguments = ["evaluate", "grade", "cruxeval_output", str(folder / "completions.jsonl"), "--data", str(folder / "data.jsonl")]
    assert main([*arguments, "--out", str(folder / out), "--allow-weak"]) == 2
    assert re.search("exists and has no verdicts|expected a name that does not end in .json", capsys.readouterr().err)
    assert before == {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
