"""Differences of arms against scipy's models functions, the test's false positives, and what cannot be compared."""

import csv
import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from populora.cli.evaluate_compare import main
from populora.core.errors import ConfigError
from populora.core.rng import stream
from populora.evals.comparison import ComparedArm, Difference, compare, comparison_tables, holm, paired_test, read_arm
from populora.evals.eval_records import EvalModel, Grade, append, to_lines
from populora.evals.folder import verdict_file

FEW = 999


def arm(name: str, models: int = 1, benchmarks: dict[str, int] | None = None, rate: float = 0.5, key: str = "") -> ComparedArm:
    sizes = benchmarks or {"humaneval_plus": 60, "amc23": 40}
    draws = stream(0, "test", key or name)
    scores = {
        benchmark: {f"{benchmark}/{item}": float((draws.random(models) < rate).mean()) for item in range(items)}
        for benchmark, items in sizes.items()
    }
    return ComparedArm(name, models, scores, sizes)


def by_column(differences: list[Difference]) -> dict[str, Difference]:
    return {difference.column: difference for difference in differences}


def scores_of(arm: ComparedArm, benchmark: str) -> np.ndarray:
    return np.array([arm.scores[benchmark][item] for item in sorted(arm.scores[benchmark])])


def test_two_single_models_are_tested_by_mcnemar_on_the_items_that_only_one_has_right():
    first, other = arm("a"), arm("b", rate=0.8)
    difference = by_column(compare([first, other], resamples=FEW))["humaneval_plus"]
    a, b = scores_of(first, "humaneval_plus"), scores_of(other, "humaneval_plus")
    gained, lost = int(((b == 1) & (a == 0)).sum()), int(((b == 0) & (a == 1)).sum())
    assert difference.test == "McNemar" and difference.p == stats.binomtest(gained, gained + lost, 0.5).pvalue
    assert difference.difference == pytest.approx(100 * (gained - lost) / 60)
    assert difference.value - difference.baseline == pytest.approx(difference.difference)
    assert (difference.arm, difference.against, difference.items, difference.total) == ("b", "a", 60, 60)


def test_the_interval_is_scipys_percentile_bootstrap_over_items():
    first, other = arm("a", 2), arm("b", 3, rate=0.7)
    difference = by_column(compare([first, other], seed=5, resamples=FEW))["amc23"]
    a, b = scores_of(first, "amc23"), scores_of(other, "amc23")
    draws = stream(5, "compare", "b", "amc23", "bootstrap")
    expected = stats.bootstrap((b - a,), np.mean, n_resamples=FEW, method="percentile", batch=500, rng=draws).confidence_interval
    assert (difference.low, difference.high) == (pytest.approx(100 * expected.low), pytest.approx(100 * expected.high))
    assert difference.test == "sign-flip" and difference.difference == pytest.approx(100 * (b - a).mean())


@pytest.mark.parametrize(("first", "other"), [(2, 1), (1, 2)])
def test_one_model_against_a_group_is_not_tested_as_two_models(first, other):
    assert {item.test for item in compare([arm("a", first), arm("b", other)], resamples=FEW) if item.p is not None} == {"sign-flip"}


def test_an_aggregate_counts_each_benchmark_alike_and_its_interval_is_near_the_normal_one():
    sizes = {"humaneval_plus": 164, "mbpp_plus": 378, "livecodebench": 880}
    first, other = arm("a", 1, sizes), arm("b", 1, sizes, rate=0.6)
    columns = by_column(compare([first, other], resamples=2000))
    code = columns["Code"]
    assert code.difference == pytest.approx(np.mean([columns[name].difference for name in sizes])) and code.p is None
    errors = [stats.sem(scores_of(other, name) - scores_of(first, name)) for name in sizes]
    half = 100 * 1.96 * math.sqrt(sum(error**2 for error in errors)) / 3
    assert code.low is not None and code.high is not None
    assert code.low == pytest.approx(code.difference - half, abs=0.3) and code.high == pytest.approx(code.difference + half, abs=0.3)


def test_the_same_seed_gives_the_same_numbers_and_no_arm_changes_anothers():
    first, second, third = arm("a", 2), arm("b", 2), arm("c", 3)
    both = compare([first, second, third], seed=1, resamples=FEW)
    assert both == compare([first, second, third], seed=1, resamples=FEW)
    alone = compare([first, third], seed=1, resamples=FEW)
    assert [replace(item, adjusted=None) for item in both if item.arm == "c"] == [replace(item, adjusted=None) for item in alone]
    assert both != compare([first, second, third], seed=2, resamples=FEW)


@pytest.mark.parametrize("sources", [1, 2])
def test_a_benchmark_of_one_item_has_no_interval_and_neither_has_an_aggregate_over_it(sources: int):
    sizes = {"humaneval_plus": 1, "amc23": 40}
    first, other = arm("a", sources, sizes, rate=0.0), arm("b", sources, sizes, rate=1.0)
    columns = by_column(compare([first, other], resamples=FEW))
    for name in ("humaneval_plus", "Code", "All"):
        assert columns[name].difference == 100 and columns[name].low is None and columns[name].high is None
    assert columns["humaneval_plus"].p == 1.0


def null_scores(draws: np.random.Generator, items: int, models: int, other: int) -> tuple[np.ndarray, np.ndarray]:
    """Two models that are as good as one another but at other items: by item, the shares of their samples that are right."""
    difficulty = 2 * draws.normal(size=items)
    chances = [1 / (1 + np.exp(-difficulty - draws.normal(size=items))) for _ in range(2)]
    a, b = ((draws.random((count, items)) < chance).mean(axis=0) for count, chance in zip((models, other), chances, strict=True))
    return a, b


@pytest.mark.slow
@pytest.mark.parametrize("models, other, items", [(1, 1, 164), (4, 4, 40), (8, 1, 164), (8, 2, 164)])
def test_the_test_rejects_arms_of_one_quality_no_more_often_than_it_says(models: int, other: int, items: int):
    draws, rejected, trials = stream(0, "false positives", models, other), 0, 300
    for _ in range(trials):
        a, b = null_scores(draws, items, models, other)
        rejected += paired_test(a, b, models == other == 1, draws, resamples=399)[1] <= 0.05
    assert stats.binomtest(rejected, trials, 0.05, alternative="greater").pvalue > 0.005, rejected / trials


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_rejects_what_its_step_down_procedure_rejects(p: list[float]):
    adjusted = holm(p)
    assert all(before <= after <= min(1, before * len(p)) + 1e-12 for before, after in zip(p, adjusted, strict=True))
    assert sorted(adjusted) == [adjusted[index] for index in sorted(range(len(p)), key=lambda index: (p[index], adjusted[index]))]
    for level in (0.05, 0.3):
        rejected, order = set[int](), sorted(range(len(p)), key=p.__getitem__)
        for rank, index in enumerate(order):
            if p[index] * (len(p) - rank) > level:
                break
            rejected.add(index)
        assert rejected == {index for index, new in enumerate(adjusted) if new <= level}


def without(arm: ComparedArm, benchmark: str, count: int) -> ComparedArm:
    return replace(arm, scores={**arm.scores, benchmark: dict(list(arm.scores[benchmark].items())[count:])})


@pytest.mark.parametrize(
    "arms, message",
    [
        ([arm("a")], "at least two evaluations"),
        ([arm("a"), arm("b"), arm("b", key="c")], "different names"),
        ([arm("a"), arm("b", benchmarks={"gsm8k": 5})], "'b' and 'a' have no benchmark in common"),
        ([arm("a"), without(arm("b"), "amc23", 4)], r"amc23: 'b' has no verdict on 4 of .* 'a' has \(amc23/0, .* to leave amc23 out"),
        ([without(arm("a"), "amc23", 1), arm("b")], r"amc23: 'a' has no verdict on 1 of the items that 'b' has"),
    ],
)
def test_arms_that_do_not_match_are_refused(arms: list[ComparedArm], message: str):
    with pytest.raises(ConfigError, match=message):
        compare(arms, resamples=FEW)


def test_a_benchmark_graded_in_part_is_compared_but_in_no_aggregate():
    sizes = {"humaneval_plus": 60, "amc23": 40, "aime24": 30}
    arms = [without(arm(name, 1, sizes), "amc23", 10) for name in ("a", "b")]
    columns = by_column(compare(arms, resamples=FEW))
    assert (columns["amc23"].items, columns["amc23"].total) == (30, 40)
    assert "Code" in columns and not {"Math", "All"} & columns.keys()
    layout = comparison_tables(compare(arms, resamples=FEW))[0]
    assert any(line.cells[0].text == "30/40" for line in layout.rows) and any("No Math, All" in note for note in layout.footnotes)


def test_arms_are_read_from_folders_in_an_extraction_mode(tmp_path: Path):
    for number in range(2):
        file = verdict_file(tmp_path, "aime24", f"T{number}")
        file.parent.mkdir(parents=True, exist_ok=True)
        append(file, Grade("a", True, modes={"strict": number == 0}))
    sources = [EvalModel("T0", "teacher"), EvalModel("T1", "teacher")]
    read = read_arm(tmp_path, "run", sources, {"aime24": 30, "gsm8k": 1319}, "strict")
    assert read.mode == "strict"
    assert read.scores == {"aime24": {"a": 0.5}} and (read.models, read.sizes["aime24"]) == (2, 30)
    assert read_arm(tmp_path, "run", sources, {"aime24": 30}).scores["aime24"] == {"a": 1.0}
    append(verdict_file(tmp_path, "aime24", "T0"), Grade("b", True))
    with pytest.raises(ConfigError, match=r"aime24: T1 of 'run' has no verdict on 1 of the items that T0 of 'run' has \(b\)"):
        read_arm(tmp_path, "run", sources, {"aime24": 30})


def test_a_void_item_is_not_compared(tmp_path: Path):
    verdict_file(tmp_path, "aime24", "T0").parent.mkdir(parents=True)
    for grade in (Grade("a", True), Grade("b", False, "gold_failed:timeout", void=True)):
        append(verdict_file(tmp_path, "aime24", "T0"), grade)
    assert read_arm(tmp_path, "run", [EvalModel("T0", "teacher")], {"aime24": 1}).scores == {"aime24": {"a": 1.0}}


def test_what_is_significant_only_before_the_correction_is_not_marked():
    difference = by_column(compare([arm("a"), arm("b")], resamples=FEW))["amc23"]
    both = [replace(difference, column=name, p=0.03, adjusted=p) for name, p in (("amc23", 0.06), ("aime24", 0.04))]
    assert [row.cells[3].bold for row in comparison_tables(both)[0].rows] == [False, True]


def test_the_command_compares_models_but_not_the_bare_base_in_the_mode_and_with_the_seed_that_it_is_told(tmp_path: Path):
    roles, draws = {"base": "base", "S0": "student", "S1": "student"}, stream(0, "verdicts")
    grades = {name: [Grade(f"i{item}", False, modes={"strict": bool(draws.random() < 0.5)}) for item in range(30)] for name in roles}
    for name, of_model in grades.items():
        verdict_file(tmp_path, "aime24", name).parent.mkdir(parents=True, exist_ok=True)
        verdict_file(tmp_path, "aime24", name).write_bytes(to_lines(of_model))
    settings = {"models": {name: {"role": role} for name, role in roles.items()}, "benchmarks": {"aime24": {"items": 30}}}
    (tmp_path / "evaluation.json").write_text(json.dumps({"settings": settings}))
    first, second = f"{tmp_path}:base", str(tmp_path)
    assert main([first, second, "--mode", "strict", "--seed", "5", "-o", str(tmp_path / "out")]) == 0
    arms = [
        ComparedArm(text, len(names), {"aime24": {f"i{item}": fmean(grades[name][item].modes["strict"] for name in names)
                                                  for item in range(30)}}, {"aime24": 30}, "strict")
        for text, names in ((first, ["base"]), (second, ["S0", "S1"]))
    ]  # fmt: skip
    (written,) = [row for row in csv.DictReader((tmp_path / "out" / "comparison.csv").open()) if row["column"] == "aime24"]
    expected = by_column(compare(arms, seed=5))["aime24"]
    assert written == {name: str(value) for name, value in asdict(expected).items()}


def test_a_table_of_a_comparison_has_its_mode_and_seed_and_marks_what_is_significant():
    arms = [replace(arm("first_run", 2), mode="strict"), replace(arm("second", 2, rate=0.9), mode="strict")]
    (table,) = comparison_tables(compare(arms, seed=3, resamples=FEW), more_footnotes=["More of it."])
    assert [row.label for row in table.rows] == ["HE+", "AMC", "Code (1/3)", "Math (1/7)", "All (2/10)"]
    assert table.rows[0].cells[3].bold and table.rows[2].cells[-1].text == "–"
    assert "Extraction mode: strict; benchmarks without it count their primary mode." in table.footnotes
    assert any("bootstrap over items (seed 3)" in note for note in table.footnotes) and table.footnotes[-1] == "More of it."
    assert len(comparison_tables(compare([arm("a"), arm("b"), arm("c")], resamples=FEW))) == 2
