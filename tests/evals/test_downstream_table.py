"""The downstream table: means against the standard library's, and nothing averaged that is not whole."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from populora.core.rng import stream
from populora.evals.aggregates import ScoreRow, aggregates_over, graded_benchmarks, score_rows
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.downstream_table import downstream_tables, score_records
from populora.evals.eval_records import EvalModel, Evaluation, Score
from populora.evals.text_table import TextTable

CODE = ("humaneval_plus", "mbpp_plus", "livecodebench")
MATH = tuple(name for name, benchmark in BENCHMARKS.items() if benchmark.group == "math")
POPULATION = (
    EvalModel("base", "base"),
    EvalModel("T0", "teacher"),
    EvalModel("T1", "teacher"),
    EvalModel("S0", "student"),
    EvalModel("S1", "student"),
)


def evaluation(
    rates: Mapping[str, Mapping[str, float]], models: Sequence[EvalModel] = POPULATION, name: str = "run", **graded: int
) -> Evaluation:
    """``rates[model][benchmark]`` of 200 items; ``graded``: how many of them by ``model__benchmark``."""
    scores = [
        Score(model, benchmark, round(rate / 100 * count), count, 200, {})
        for model, of_model in rates.items()
        for benchmark, rate in of_model.items()
        for count in [graded.get(f"{model}__{benchmark}", 200)]
    ]
    return Evaluation(name, tuple(models), tuple(scores))


def full(
    benchmarks: Sequence[str] = (*CODE, *MATH), models: Sequence[EvalModel] = POPULATION, seed: int = 0
) -> dict[str, dict[str, float]]:
    draws = stream(seed, "test")
    return {model.name: {name: int(draws.integers(201)) / 2 for name in benchmarks} for model in models}


def rows_of(*evaluations: Evaluation, members: bool = True) -> dict[str, ScoreRow]:
    """The rows of the last evaluation by label, with aggregates over what all of them have."""
    return {row.label: row for row in score_rows(evaluations[-1], aggregates_over(graded_benchmarks(evaluations)), members)}


def texts(table: TextTable) -> str:
    return " ".join([*table.columns, *(cell.text for row in table.rows for cell in row.cells), *table.footnotes])


def test_rows_stand_as_in_the_paper_and_members_below():
    labels = list(rows_of(evaluation(full())))
    means = ["Population, mean of 4", "Teacher, mean of 2", "Student, mean of 2"]
    assert labels == ["base", *means, "Worst of 4", "Best of 4", "T0", "T1", "S0", "S1"]
    assert list(rows_of(evaluation(full()), members=False)) == labels[:6]
    pair = (EvalModel("base", "base"), EvalModel("T0", "teacher"), EvalModel("A0", "agent"))
    assert list(rows_of(evaluation(full(models=pair), pair)))[:3] == ["base", "Agent A0", "Teacher T0"]  # of one member


def test_a_role_has_the_mean_and_sample_deviation_of_its_members_also_of_their_aggregates():
    rates = full()
    cells = rows_of(evaluation(rates))["Teacher, mean of 2"].cells
    both = [rates["T0"]["amc23"], rates["T1"]["amc23"]]
    assert (cells["amc23"].value, cells["amc23"].std) == (pytest.approx(statistics.fmean(both)), pytest.approx(statistics.stdev(both)))
    means = [statistics.fmean(rates[name][benchmark] for benchmark in MATH) for name in ("T0", "T1")]
    assert (cells["Math"].value, cells["Math"].std) == (pytest.approx(statistics.fmean(means)), pytest.approx(statistics.stdev(means)))


def test_the_populations_mean_and_deviation_are_over_the_members_of_both_roles():
    rates = [of_model for name, of_model in full().items() if name != "base"]
    cells = rows_of(evaluation(full()))["Population, mean of 4"].cells
    for column, values in (("amc23", [rate["amc23"] for rate in rates]), ("All", [statistics.fmean(rate.values()) for rate in rates])):
        assert (cells[column].value, cells[column].std) == pytest.approx((statistics.fmean(values), statistics.stdev(values)))


def test_worst_and_best_are_of_each_benchmark_over_both_roles_and_their_aggregates_means_of_those():
    rates = full()
    members = [rates[name] for name in ("T0", "T1", "S0", "S1")]  # not the base
    rows = rows_of(evaluation(rates))
    for label, choose in (("Worst of 4", min), ("Best of 4", max)):
        chosen = {name: choose(rates_of[name] for rates_of in members) for name in (*CODE, *MATH)}
        cells = rows[label].cells
        assert {name: cells[name].value for name in chosen} == pytest.approx(chosen)
        assert cells["Code"].value == pytest.approx(statistics.fmean(chosen[name] for name in CODE))
        assert cells["All"].value == pytest.approx(statistics.fmean(chosen.values()))


def test_a_benchmark_graded_in_part_is_shown_with_its_coverage_and_enters_no_mean():
    rates = full()
    rows = rows_of(evaluation(rates, T1__mbpp_plus=50))
    part = rows["T1"].cells
    assert (part["mbpp_plus"].counted, part["mbpp_plus"].total) == (50, 200) and "Code" not in part and "All" not in part and "Math" in part
    teachers, worst = rows["Teacher, mean of 2"].cells, rows["Worst of 4"].cells
    assert (teachers["mbpp_plus"].value, teachers["mbpp_plus"].counted, teachers["mbpp_plus"].total) == (rates["T0"]["mbpp_plus"], 1, 2)
    assert teachers["mbpp_plus"].std is None and teachers["Code"].counted == 1 and teachers["Math"].complete
    assert worst["mbpp_plus"].counted == 3 and "Code" not in worst
    text = texts(downstream_tables([evaluation(rates, T1__mbpp_plus=50)])[0])
    assert "(50/200)" in text and "(1/2)" in text and "(3/4)" in text and "T1 on MBPP+ 50/200" in text


def test_aggregates_over_fewer_benchmarks_say_so():
    two = full(("humaneval_plus", "mbpp_plus", *MATH))
    partial = evaluation({**two, "T0": {**two["T0"], "livecodebench": 0.0}}, T0__livecodebench=0)
    text = texts(downstream_tables([partial])[0])
    assert "Code (2/3)" in text and "All (9/10)" in text and "Math (" not in text
    assert "Code (2/3) is without LCB." in text and "Not graded at all: LCB." in text


def test_there_is_no_all_without_both_code_and_mathematics_and_none_for_other_groups():
    assert aggregates_over(CODE) == {"Code": CODE} and aggregates_over(MATH) == {"Math": MATH}
    assert aggregates_over(["tiny", "cruxeval_input"]) == {}
    layout = downstream_tables([evaluation(full(["tiny"]))])[0]
    assert layout.columns == ("tiny",) and layout.groups == (("Tiny base", 1),)


def test_foreign_adapters_are_not_among_the_members_that_worst_and_best_are_of():
    models = (*POPULATION, EvalModel("lab", "adapter"))
    rates = {**full(["amc23"]), "lab": {"amc23": 100.0}}
    rows = rows_of(evaluation(rates, models))
    best = max(rates[name]["amc23"] for name in ("T0", "T1", "S0", "S1"))
    assert rows["Best of 4"].cells["amc23"].value == best < 100 and rows["Adapter lab"].cells["amc23"].value == 100
    two = (*POPULATION[1:2], POPULATION[3], EvalModel("lab", "adapter"), EvalModel("other", "adapter"))
    labels = list(rows_of(evaluation(full(["amc23"], two), two)))
    pair = ["Population, mean of 2", "Teacher T0", "Student S0"]
    assert labels == [*pair, "Adapter, mean of 2", "Worst of 2", "Best of 2", "lab", "other"]
    alone = two[2:]
    assert list(rows_of(evaluation(full(["amc23"], alone), alone)))[1:3] == ["Worst of 2", "Best of 2"]


def test_all_rows_of_a_table_average_the_same_benchmarks():
    less, more = evaluation(full(("humaneval_plus",)), name="less"), evaluation(full(), name="more")
    assert "Code" in rows_of(less, more)["T0"].cells and "Code" not in rows_of(more, less)["T0"].cells
    assert any(row.label == "less T0" for row in downstream_tables([more, less])[0].rows)


def test_skipped_benchmarks_and_steps_are_in_the_notes():
    models = tuple(replace(model, step=200) for model in POPULATION[1:])
    partial = replace(evaluation(full(), models), skipped={"aime24": "aime24: 'x' is not there"})
    notes = downstream_tables([partial])[0].footnotes
    assert "Skipped aime24: 'x' is not there" in notes and "Members at step 200." in notes
    both = downstream_tables([partial, evaluation(full(), name="other")])[0].footnotes
    assert "run: Skipped aime24: 'x' is not there" in both


def test_the_best_complete_value_of_a_column_is_bold_also_where_several_print_alike():
    rates = {"base": {"amc23": 10.0}, "T0": {"amc23": 50.0}, "T1": {"amc23": 50.0}, "S0": {"amc23": 20.0}, "S1": {"amc23": 90.0}}
    table = downstream_tables([evaluation(rates, S1__amc23=100)])[0]
    assert [row.label for row in table.rows if row.cells[0].bold] == ["Teacher, mean of 2", "T0", "T1"]  # S1 has more, of half the items
    assert next(row for row in table.rows if row.label == "Best of 4†").cells[0].text == "50.0 (3/4)"
    assert not downstream_tables([evaluation({"base": {"amc23": 10.0}}, POPULATION[:1])])[0].rows[0].cells[0].bold


def test_extraction_modes_are_compared_in_a_second_table():
    modes = {"strict": 20, "lenient": 40}
    scores = [Score(model.name, "math500", 40, 100, 100, modes) for model in POPULATION]
    scores += [Score(model.name, "minerva_math", 30, 100, 100, {**modes, "third": 50}) for model in POPULATION]
    first, second = downstream_tables([Evaluation("run", POPULATION, tuple(scores))])
    values = {row.label: [cell.text for cell in row.cells] for row in second.rows}
    assert values["base, strict"] == ["20.0", "20.0", "20.0"]
    assert values["Teacher, mean of 2, third"] == ["40.0±0.0", "50.0±0.0", "45.0±0.0"]  # MATH-500 has no such mode
    assert not any("Worst" in label or "T0" in label for label in values)
    assert "primary mode (lenient)" in second.footnotes[0] and first.rows[0].cells[1].text == "30.0"


def test_records_are_unrounded_and_have_every_mode():
    score = Score("base", "humaneval_plus", 130, 164, 164, {"strict": 100})
    records = score_records([Evaluation("run", POPULATION[:1], (score,))], paper=True)
    by_mode = {record["mode"]: record["value"] for record in records if record["row"] == "base" and record["column"] == "humaneval_plus"}
    assert by_mode == {"primary": 100 * 130 / 164, "strict": 100 * 100 / 164} and any(record["mode"] == "published" for record in records)
    aggregates = {record["mode"]: record["value"] for record in records if record["row"] == "base" and record["column"] == "Code"}
    assert aggregates == by_mode  # over a single benchmark, before rounding
