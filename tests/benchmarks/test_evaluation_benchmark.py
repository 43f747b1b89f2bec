"""The evaluation's measurements at toy size: what they count, that bars can be missed, and that the committed results are of one piece."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

import pytest

from populora.evals.benchmarks import BENCHMARKS
from populora.evals.grading import open_grader
from populora.evals.records import Item

FOLDER = Path(__file__).parents[2] / "benchmarks" / "evaluation"
PROGRAMS = (
    "def f(x):\n    return x + 2",
    "def f(x):\n    return [x] * 2",
    "def f(x):\n    return (x - 1) * 3",
    "def f(x):\n    return x > 2",
)
OUTPUTS = ("5", "[3, 3]", "6", "True")
EVALPLUS = """#!{python}
import json, os, pathlib, sys, time
samples = pathlib.Path(sys.argv[sys.argv.index("--samples") + 1])
cache = pathlib.Path(os.environ["XDG_CACHE_HOME"], "outputs")
known = cache.exists()
cache.parent.mkdir(exist_ok=True)
cache.touch()
verdict = {{"plus_status": "fail", "base_status": "pass"}}
verdicts = {{json.loads(line)["task_id"]: [verdict] for line in samples.read_text().splitlines()}}
samples.with_name("theirs_eval_results.json").write_text(json.dumps({{"eval": verdicts, "known": known}}))
time.sleep(0.4)
"""


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


def crux() -> list[Item]:
    rows = [{"id": f"made_{place}", "code": PROGRAMS[place], "input": "3", "output": OUTPUTS[place]} for place in range(4)]
    return [Item(row["id"], row) for row in rows]


def coding(count: int) -> list[Item]:
    fields = {"prompt": "def twice(x):\n", "canonical_solution": "    return 2 * x\n", "entry_point": "twice"}
    return [Item(f"Made/{place}", fields) for place in range(count)]


def committed(name: str) -> dict:
    return json.loads((FOLDER / f"{name}.json").read_text())


def test_a_check_is_graded_as_often_as_it_says_and_a_miss_is_bold(script):
    gold = script("gold")
    own, other = gold.checks_of("cruxeval_output")
    with open_grader(BENCHMARKS["cruxeval_output"], 1, allow_weak=True) as court:
        rows = [gold.row("cruxeval_output", crux(), check, court) for check in (own, other)]
    assert (rows[0]["right"], rows[0]["expected"], rows[0]["times"], rows[0]["same_bytes"]) == (4, 4, 2, True)
    assert (rows[1]["right"], rows[1]["expected"], gold.as_expected(rows[1])) == (0, 8, False)
    parts = {"cruxeval_output": {"rows": rows}}
    assert list(gold.bars(parts).values()) == [{"at_most": 0, "found": 1, "met": False}]
    table = gold.table({"parts": parts})
    assert "| its own outputs, twice with the same bytes | 4 of 4 | 4 |" in table and "| **0 of 4** | 8 |" in table


def test_other_bytes_of_the_second_grading_are_not_as_expected(script):
    assert not script("gold").as_expected({"right": 4, "expected": 4, "same_bytes": False})


def test_answers_to_mathematics_are_made_of_the_gold_answers(script):
    checks = script("gold").checks_of("minerva_math")
    items = [Item(str(place), {"solution": f"so \\boxed{{{answer}}}"}) for place, answer in enumerate(("18", "4.5e33", "4.5e33"))]
    made = [[check.answer(item, other) for item, other in zip(items, [*items[1:], items[0]], strict=True)] for check in checks]
    box, sentence, more, neighbour, power, fixed = made
    assert box == ["\\boxed{18}", "\\boxed{4.5e33}", "\\boxed{4.5e33}"] and sentence[0].endswith("The final answer is $\\boxed{18}$.")
    assert more == ["\\boxed{19}", None, None] and neighbour == ["\\boxed{4.5e33}", None, "\\boxed{18}"]
    assert power == fixed == [None, *["\\boxed{4.5 \\times 10^{33}}"] * 2]
    assert [check.reading for check in checks[-2:]] == ["lenient", "fixed"]


def test_every_benchmark_with_known_answers_has_checks(script):
    gold = script("gold")
    assert [len(gold.checks_of(name)) for name in gold.NAMES] == [2, 2, 4, 4, 4, 4, 6, 4, 4, 2, 2]


def test_half_of_the_completions_are_wrong_and_some_never_end(script):
    load = script("load")
    texts = list(load.wrong_ones_too(coding(150)).values())
    endless = [place for place, text in enumerate(texts) if "while True" in text]
    wrong = [place for place, text in enumerate(texts) if "return None" in text]
    assert endless == list(load.LOOPS) and wrong == list(range(1, 150, 2))
    _, answers = load.CASES["CRUXEval-O, every second one a neighbour's"]
    assert list(answers(crux()).values()) == ["5", "6", "6", "5"]


def test_a_verdict_that_differs_misses_the_bar(script):
    load = script("load")
    right, wrong, late = (
        json.dumps({"item_id": "a", "correct": correct, "reason": reason}).encode()
        for correct, reason in ((True, ""), (False, "wrong:plus:3"), (False, "timeout:plus:3"))
    )
    assert load.differences([right, wrong], [right, wrong]) == {"other_verdicts": [], "other_lines": []}
    assert load.differences([right, wrong], [wrong, late]) == {"other_verdicts": ["a"], "other_lines": ["a", "a"]}
    run = {"other_verdicts": [], "other_lines": ["a"]}
    found = load.bars({"case": {"items": 2, "busy": [run, run]}})
    assert [(bar["found"], bar["of"], bar["met"]) for bar in found.values()] == [(0, 4, True), (2, 4, False)]


@pytest.mark.slow
def test_completions_are_graded_alone_and_on_a_busy_machine(script, tmp_path, monkeypatch):
    load = script("load")
    path = tmp_path / "cruxeval.jsonl"
    path.write_text("".join(json.dumps(item.fields) + "\n" for item in crux()))
    burning = []
    monkeypatch.setattr(load, "BUSY", f"open({str(tmp_path / 'burnt')!r}, 'a').write('x')\nwhile True: pass")
    real = load.busy
    monkeypatch.setattr(load, "busy", lambda count: (burning.append(count), real(count))[1])
    texts = {item.id: text for item, text in zip(crux(), ("5", "6", "6", "True"), strict=True)}
    found = load.measure("cruxeval_output", texts, path, 1, ("--allow-weak",))
    assert burning == [2 * os.cpu_count()] and len((tmp_path / "burnt").read_text()) == burning[0]
    assert (found["items"], found["right"], found["overturned"]) == (4, 3, [])
    (again,) = found["busy"]
    assert (again["right"], again["other_lines"]) == (3, []) and again["cpu"] > 0


@pytest.fixture
def evalplus(script, tmp_path):
    """The ways of a stand-in for evalplus, which keeps a cache, finds everything wrong and lingers."""
    interpreter = tmp_path / "python"
    interpreter.write_text(EVALPLUS.format(python=sys.executable))
    interpreter.chmod(0o755)
    return script("evalplus_time").their_ways("humaneval_plus", tmp_path / "data", coding(2), 2, str(interpreter), tmp_path)


def test_evalplus_is_timed_to_its_verdicts_with_and_without_its_cache(evalplus, tmp_path):
    result = tmp_path / "theirs_eval_results.json"
    for name, known in (("evalplus, first", False), ("evalplus, again", True), ("evalplus, first", False)):
        seconds = evalplus[name]()
        assert json.loads(result.read_text())["known"] is known
        assert 0 < seconds["verdicts"] <= seconds["process"] - 0.3


def test_other_verdicts_than_evalplus_are_named(script, evalplus, tmp_path):
    evalplus["evalplus, first"]()
    lines = ({"item_id": f"Made/{place}", "correct": place == 1} for place in range(2))
    (tmp_path / "ours.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert script("evalplus_time").other_verdicts(tmp_path) == ["Made/1"]
    assert script("evalplus_time").right(tmp_path) == {"populora": 1, "evalplus": 0}


def test_ratios_are_taken_within_a_round_and_a_slow_grading_misses_the_bar(script):
    module = script("evalplus_time")
    names = ("process", "verdicts", "cpu")
    rounds = {
        name: [dict.fromkeys(names, seconds) for seconds in each]
        for name, each in ((module.OURS, (14.0, 28.0, 14.0)), (module.FIRST, (20.0, 40.0, 20.0)), (module.AGAIN, (10.0, 20.0, 10.0)))
    }
    found = module.figures(rounds)
    assert found["ratios"][module.AGAIN]["verdicts"] == {"median": 1.4, "min": 1.4, "max": 1.4}
    bars = module.bars({"humaneval_plus, 2 at a time": found, "mbpp_plus, 2 at a time": found})
    assert [(bar["found"], bar["met"]) for bar in bars.values()] == [(0.7, True), (1.4, False)]


def test_a_process_that_fails_stops_the_measurement_with_what_it_said(script, tmp_path):
    with pytest.raises(SystemExit, match=r"ended with 3:\nno such thing"):
        script("grader").spent([sys.executable, "-c", "print('no such thing'); raise SystemExit(3)"], tmp_path / "log")


def test_a_part_is_put_beside_the_others_and_bars_are_over_all(script, tmp_path):
    def bars(parts):
        return {"sum": script("grader").at_most(2, sum(part["found"] for part in parts.values()))}

    out = tmp_path / "results" / "found.json"
    for name, found in (("a", 1), ("b", 2), ("a", 0)):
        results = script("grader").keep(out, {name: {"found": found}}, bars)
    assert results == json.loads(out.read_text()) == {
        "parts": {"a": {"found": 0}, "b": {"found": 2}}, "bars": {"sum": {"at_most": 2, "found": 2, "met": True}}
    }  # fmt: skip


@pytest.mark.slow
def test_the_tiny_suite_is_timed_by_part(script, tmp_path):
    suite = script("tiny_suite")
    seconds = suite.evaluated(["evaluate", "tiny", "--suite", "tiny", "--limit", "3", "--allow-weak"], tmp_path / "evaluation")
    assert seconds["whole"] == pytest.approx(seconds["generation"] + seconds["grading"] + seconds["table"], abs=0.05)
    assert min(seconds[part] for part in ("generation", "grading", "table", "cpu")) > 0
    found = suite.scores(tmp_path / "evaluation")
    assert (found["items"], found["members"], list(found["right_percent"])) == (3, 1, ["base"])
    assert suite.distinct(tmp_path / "evaluation") == 3


def test_a_tiny_suite_that_takes_too_long_misses_its_bar(script):
    found = {"members": 8, "machine": {"cores": 2}, "seconds": {"whole": {"median": 90.5}}}
    assert script("tiny_suite").bars(found) == {"seconds for 8 members on 2 cores": {"at_most": 90.0, "found": 90.5, "met": False}}


def test_the_committed_gold_answers_are_as_expected(script):
    gold, found = script("gold"), committed("gold")
    assert set(found["parts"]) == set(gold.NAMES)
    assert found["bars"] == gold.bars(found["parts"]) and all(bar["met"] for bar in found["bars"].values())
    assert gold.table(found) == (FOLDER / "gold.md").read_text(encoding="utf-8")
    for name, part in found["parts"].items():
        assert [(row["answers"], row["reading"]) for row in part["rows"]] == [(one.what, one.reading) for one in gold.checks_of(name)]
        assert part["rows"][0]["items"] == BENCHMARKS[name].items and part["data_sha256"] == BENCHMARKS[name].sha256


def test_the_committed_verdicts_are_the_same_on_a_busy_machine(script):
    load, found = script("load"), committed("load")
    assert set(found["parts"]) == set(load.CASES) and all(len(part["busy"]) == 2 for part in found["parts"].values())
    assert found["bars"] == load.bars(found["parts"]) and found["bars"]["verdicts that differ"]["met"]


def test_the_committed_times_have_both_benchmarks_and_their_bars(script):
    module, found = script("evalplus_time"), committed("evalplus_time")
    assert set(found["parts"]) == {"humaneval_plus, 2 at a time", "humaneval_plus, 1 at a time", "mbpp_plus, 2 at a time"}
    assert found["bars"] == module.bars(found["parts"]) and len(found["bars"]) == 4
    for name, part in found["parts"].items():
        assert part["right"]["populora"] == part["items"] == BENCHMARKS[name.partition(",")[0]].items
        assert part["rounds"] >= (3 if name.startswith("humaneval") else 1)


def test_the_committed_tiny_suite_is_of_eight_members_that_differ(script):
    found = committed("tiny_suite")
    assert (found["members"], found["items"]) == (8, BENCHMARKS["tiny"].items) and len(found["right_percent"]) == 8
    assert found["distinct_completions"] > found["items"] and len(set(found["right_percent"].values())) > 1
    assert found["bars"] == script("tiny_suite").bars(found)
