"""The explorer's sample: within its budget, spread over everything, equal to the tables, and stated."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_runs import rewrite, table, the_run, write_run

from populora.report.explorer import MAX_ANSWERS, MAX_TEXT, bisected, sample_problems

ALL = 10**7


def sample(folder: Path, budget: int = ALL) -> dict[str, Any]:
    return sample_problems(the_run(folder), budget)


def characters(value: Any) -> int:
    """Of all texts of an entry."""
    if isinstance(value, str):
        return len(value)
    return sum(map(characters, value.values() if isinstance(value, dict) else value)) if isinstance(value, dict | list) else 0


def test_with_room_enough_every_proposal_is_there_and_equals_its_rows(runs):
    folder = runs["pair"]
    proposals, whole = table(folder, "proposals"), sample(folder)
    entries = {entry["id"]: entry for entry in whole["entries"]}
    assert len(entries) == len(whole["entries"]) == len(proposals) == whole["proposals"]
    assert whole["valid"] == sum(row["valid"] for row in proposals)
    assert (
        whole["answers"] == sum(entry.get("of", 0) for entry in entries.values()) < len(table(folder, "attempts"))
    )  # none from the buffer
    problems = {row["problem_id"]: row for row in table(folder, "problems")}
    for row in proposals:
        if not row["valid"]:
            continue
        entry, problem = entries[row["problem_id"]], problems[row["problem_id"]]
        shared = ("step", "author", "task", "reward", "rho", "ast_depth", "cyclomatic", "loc", "variables")
        assert {name: entry[name] for name in shared} == {name: row[name] for name in shared}
        assert entry["text"] == row["text"] and (entry["program"], entry["message"]) == (problem["program"], problem["message"])
        for side in ("shown", "hidden"):
            assert entry[side] == [[example["inputs"], example["output"]] for example in problem[side]]
        rho = row["rho"]
        assert entry["verdict"] == ("void" if rho is None else {0: "solved never", 1: "solved always"}.get(rho, "solved sometimes"))
    rejected = [entry for entry in whole["entries"] if "program" not in entry]
    assert Counter((entry["step"], entry["author"], entry["verdict"], entry["text"]) for entry in rejected) == Counter(
        (row["step"], row["author"], f"rejected: {row['rejection']}", row["text"]) for row in proposals if not row["valid"]
    )


def test_equal_answers_stand_once_with_their_number_and_no_verdict_is_lost_to_another(runs):
    names = ("student", "text", "correct", "void", "reason", "reward", "trained")
    attempts = table(runs["pair"], "attempts")
    for entry in sample(runs["pair"])["entries"]:
        counts = Counter(tuple(row[name] for name in names) for row in attempts if row["problem_id"] == entry["id"])
        answers = {tuple(answer[name] for name in names): answer["times"] for answer in entry.get("answers", ())}
        assert answers.items() <= counts.items() and len(answers) == min(MAX_ANSWERS, len(counts))
        assert entry.get("of", 0) == counts.total()
        verdicts = {(correct, void, reason) for _, _, correct, void, reason, *_ in counts}
        assert len({key[2:5] for key in answers}) == min(MAX_ANSWERS, len(verdicts))


def test_of_many_answers_those_of_different_verdicts_come_first_then_the_most_frequent(copied):
    folder = copied()
    row = next(row for row in table(folder, "attempts", 1) if not row["filled"])
    wrong = {**row, "correct": False, "reason": "wrong_value", "void": False}
    common, rare = [{**wrong, "text": "common"}] * 3, [{**wrong, "text": f"rare {index}"} for index in range(6)]
    others = [{**wrong, "reason": "format", "text": "unfenced"}, {**wrong, "correct": True, "reason": "", "text": "right"}]
    rewrite(folder, "attempts", 1, lambda attempts: pa.Table.from_pylist([*rare[:2], *common, *rare[2:], *others], attempts.schema))
    entry = next(entry for entry in sample(folder)["entries"] if entry["id"] == row["problem_id"])
    counts = [(answer["text"], answer["times"]) for answer in entry["answers"]]
    assert counts == [("common", 3), ("unfenced", 1), ("right", 1), ("rare 0", 1)]
    assert entry["of"] == 11


@pytest.mark.parametrize("budget", [0, 900, 5_000, 20_000, 50_000])
def test_a_budget_is_kept_and_used(runs, budget):
    entries = sample(runs["pair"], budget)["entries"]
    assert sum(map(characters, entries)) <= budget
    whole = sample(runs["pair"])["entries"]
    assert len(entries) < len(whole) and all(entry in whole for entry in entries)
    assert budget < 5_000 or sum(map(characters, entries)) > budget / 10


def test_the_first_round_has_a_problem_of_every_step_author_and_type_and_a_rejected_one(runs):
    proposals = table(runs["pair"], "proposals")
    groups = {(row["step"], row["author"], row["task"] if row["valid"] else "rejected") for row in proposals}
    budgets = (sample(runs["pair"], budget)["entries"] for budget in range(10_000, 10**6, 2_000))
    entries = next(entries for entries in budgets if len(entries) >= len(groups))
    assert len(entries) < len(groups) + 8 < len(proposals)
    assert {(entry["step"], entry["author"], entry["task"] if "program" in entry else "rejected") for entry in entries} == groups


@given(st.lists(st.integers(1, 500), unique=True, max_size=60).map(sorted))
def test_every_beginning_of_the_order_of_steps_is_spread_over_all(steps):
    order = bisected(steps)
    assert sorted(order) == steps
    for length in range(2, len(order)):
        gaps = sorted(steps.index(step) for step in order[:length])
        widest = max(after - before for before, after in zip([-1, *gaps], [*gaps, len(steps)], strict=True))
        assert widest <= 4 * len(steps) / length + 1


def test_a_huge_text_is_cut_and_does_not_crowd_out_the_sample(tmp_path, make_record):
    folder = write_run(tmp_path / "run", make_record, steps=1, program="x" * 1_000_000, answer="\u202e" * 60_000)
    entries = sample(folder, 4_000_000)["entries"]
    assert entries
    for entry in entries:
        assert entry["text"] == "x" * MAX_TEXT + "\n… and 960,000 more characters, which `populora show` prints"
        for answer in entry.get("answers", ()):
            assert answer["text"].startswith("\\u202e" * MAX_TEXT) and "20,000 more characters" in answer["text"]
