"""The downstream table: means against the standard library's, and nothing averaged that is not whole."""

from __future__ import annotations

import csv
import io
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from populora.core.rng import stream
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.filing import csv_text, write_tables
from populora.evals.latex import latex, tex
from populora.evals.layout import Entry, Layout, Line, markdown, terminal
from populora.evals.report import records, tables
from populora.evals.results import Evaluation, Score, Source
from populora.evals.tables import Row, Table, averaged, downstream

CODE = ("humaneval_plus", "mbpp_plus", "livecodebench")
MATH = tuple(name for name, one in BENCHMARKS.items() if one.group == "math")
POPULATION = (Source("base", "base"), Source("T0", "teacher"), Source("T1", "teacher"), Source("S0", "student"), Source("S1", "student"))


@pytest.fixture(autouse=True, scope="module")
def all_releases_have_200_items() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(BENCHMARKS, "livecodebench", replace(BENCHMARKS["livecodebench"], items=200))
        yield


def evaluation(
    rates: Mapping[str, Mapping[str, float]], sources: Sequence[Source] = POPULATION, name: str = "run", **graded: int
) -> Evaluation:
    """``rates[source][benchmark]`` of 200 items; ``graded``: how many of them by ``source__benchmark``."""
    scores = [
        Score(source, benchmark, round(rate / 100 * count), count, 200, {})
        for source, of_source in rates.items()
        for benchmark, rate in of_source.items()
        for count in [graded.get(f"{source}__{benchmark}", 200)]
    ]
    return Evaluation(name, tuple(sources), tuple(scores))


def full(benchmarks: Sequence[str] = (*CODE, *MATH), sources: Sequence[Source] = POPULATION, seed: int = 0) -> dict[str, dict[str, float]]:
    draws = stream(seed, "test")
    return {source.name: {name: int(draws.integers(201)) / 2 for name in benchmarks} for source in sources}


def row(table: Table, label: str, block: int = 0) -> Row:
    return next(row for row in table.blocks[block].rows if row.label.startswith(label))


def text_of(layouts: Sequence[Layout], width: int = 250) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    for layout in layouts:
        console.print(terminal(layout, width))
    return console.export_text()


def test_rows_stand_as_in_the_paper_and_members_below():
    labels = [one.label for one in downstream([evaluation(full())]).blocks[0].rows]
    assert labels == ["base", "Teacher, mean of 2", "Student, mean of 2", "Worst of 4", "Best of 4", "T0", "T1", "S0", "S1"]
    assert [one.label for one in downstream([evaluation(full())], members=False).blocks[0].rows] == labels[:5]


def test_a_role_of_one_member_is_that_member():
    pair = (Source("base", "base"), Source("T0", "teacher"), Source("S0", "student"))
    labels = [one.label for one in downstream([evaluation(full(sources=pair), pair)]).blocks[0].rows]
    assert labels == ["base", "Teacher T0", "Student S0"]
    alone = (Source("A0", "agent"),)
    assert [one.label for one in downstream([evaluation(full(sources=alone), alone)]).blocks[0].rows] == ["Baseline (agent) A0"]


def test_aggregates_are_means_of_benchmarks_before_rounding():
    rates = full()
    cells = row(downstream([evaluation(rates)]), "T1").cells
    assert cells["Code"].value == pytest.approx(statistics.fmean(rates["T1"][name] for name in CODE))
    assert cells["Math"].value == pytest.approx(statistics.fmean(rates["T1"][name] for name in MATH))
    assert cells["All"].value == pytest.approx(statistics.fmean(rates["T1"].values()))


def test_a_role_has_the_mean_and_sample_deviation_of_its_members_also_of_their_aggregates():
    rates = full()
    cells = row(downstream([evaluation(rates)]), "Teacher").cells
    both = [rates["T0"]["amc23"], rates["T1"]["amc23"]]
    assert (cells["amc23"].value, cells["amc23"].std) == (pytest.approx(statistics.fmean(both)), pytest.approx(statistics.stdev(both)))
    own = [statistics.fmean(rates[name][one] for one in MATH) for name in ("T0", "T1")]
    assert (cells["Math"].value, cells["Math"].std) == (pytest.approx(statistics.fmean(own)), pytest.approx(statistics.stdev(own)))
    columns = [statistics.stdev([rates["T0"][one], rates["T1"][one]]) for one in MATH]
    assert cells["Math"].column_std == pytest.approx(statistics.fmean(columns))


def test_worst_and_best_are_of_each_benchmark_over_both_roles_and_their_aggregates_means_of_those():
    rates = full()
    members = [rates[name] for name in ("T0", "T1", "S0", "S1")]  # not the base
    table = downstream([evaluation(rates)])
    for label, choose in (("Worst", min), ("Best", max)):
        chosen = {name: choose(one[name] for one in members) for name in (*CODE, *MATH)}
        cells = row(table, label).cells
        assert {name: cells[name].value for name in chosen} == pytest.approx(chosen)
        assert cells["Code"].value == pytest.approx(statistics.fmean(chosen[name] for name in CODE))
        assert cells["All"].value == pytest.approx(statistics.fmean(chosen.values()))


@given(st.integers(0, 10**6))
def test_every_mean_lies_between_worst_and_best(seed: int):
    table = downstream([evaluation(full(seed=seed))])
    worst, best = row(table, "Worst").cells, row(table, "Best").cells
    for label in ("Teacher", "Student", "T0", "S1"):
        for column, cell in row(table, label).cells.items():
            assert worst[column].value - 1e-9 <= cell.value <= best[column].value + 1e-9


def test_a_benchmark_graded_in_part_is_shown_with_its_coverage_and_enters_no_mean():
    rates = full()
    table = downstream([evaluation(rates, T1__mbpp_plus=50)])
    part = row(table, "T1").cells
    assert (part["mbpp_plus"].counted, part["mbpp_plus"].of) == (50, 200) and "Code" not in part and "All" not in part and "Math" in part
    teachers, worst = row(table, "Teacher").cells, row(table, "Worst").cells
    assert (teachers["mbpp_plus"].value, teachers["mbpp_plus"].counted, teachers["mbpp_plus"].of) == (rates["T0"]["mbpp_plus"], 1, 2)
    assert teachers["mbpp_plus"].std is None and teachers["Code"].counted == 1 and teachers["Math"].whole
    assert worst["mbpp_plus"].counted == 3 and "Code" not in worst
    text = text_of(tables([evaluation(rates, T1__mbpp_plus=50)]))
    assert "(50/200)" in text and "(1/2)" in text and "(3/4)" in text and "T1 on MBPP+ 50/200" in text


def test_a_member_without_any_verdict_leaves_its_cell_empty_and_is_named():
    text = text_of(tables([evaluation(full(), S1__aime24=0)]))
    assert "S1 on AIME24 0/200" in text and "–" in text


def test_aggregates_over_fewer_benchmarks_say_so():
    two = full(("humaneval_plus", "mbpp_plus", *MATH))
    asked = evaluation({**two, "T0": {**two["T0"], "livecodebench": 0.0}}, T0__livecodebench=0)
    text = text_of(tables([asked]))
    assert "Code (2/3)" in text and "All (9/10)" in text and "Math (" not in text
    assert "Code (2/3) is without LCB." in text and "Asked for, but not graded at all: LCB." in text


def test_there_is_no_all_without_both_code_and_mathematics_and_none_for_other_groups():
    assert averaged(CODE) == {"Code": CODE} and averaged(MATH) == {"Math": MATH}
    assert averaged(["tiny", "cruxeval_input"]) == {}
    layout = tables([evaluation(full(["tiny"]))])[0]
    assert layout.columns == ("tiny",) and layout.groups == (("Tiny base", 1),)


def of_size(found: Evaluation, items: int) -> Evaluation:
    """With so many items of LiveCodeBench, all graded."""
    scores = [replace(one, graded=items, items=items) if one.benchmark == "livecodebench" else one for one in found.scores]
    return replace(found, scores=tuple(scores))


def test_another_release_of_livecodebench_says_so_and_does_not_pass_for_the_papers():
    found = of_size(evaluation({**full(), "T0": {**full()["T0"], "livecodebench": 2.0}}), 10)
    layout = tables([found], with_published=True)[0]
    assert layout.columns[2] == "LCB (10)" and layout.columns[-3:] == ("Code (2/3)", "Math", "All (9/10)")
    assert "LCB (10) is 10 problems, not release_v5 (200): it is in no aggregate, and the paper's column is not beside it." in layout.notes
    base = next(line for line in layout.lines if line.label == "Qwen2.5-Coder-7B")
    assert base.entries[2].value == "–" and base.entries[-3].value == "73.8"  # of 79.3 and 68.3
    rows = records([found], with_published=True)
    own = {row["row"]: row for row in rows if row["column"] == "livecodebench"}
    assert own["T0"]["value"] == 40.0 and own["T0"]["remark"] == "10 problems, not release_v5 (200)" and "Qwen2.5-Coder-7B" not in own
    assert "LCB is release_v5." in tables([evaluation(full())])[0].notes


def test_different_releases_share_no_best_and_no_aggregate():
    layout = tables([of_size(evaluation(full(), name="small"), 10), evaluation(full(), name="whole")])[0]
    assert layout.columns[2] == "LCB (10, 200)" and "Code (2/3)" in layout.columns
    assert not any(line.entries[2].bold for line in layout.lines) and any(line.entries[1].bold for line in layout.lines)
    alone = tables([of_size(evaluation(full(["livecodebench"])), 10)], with_published=True)[0]
    assert alone.columns == ("LCB (10)",) and "The paper's table has none of these benchmarks." in alone.notes


def test_what_was_skipped_stands_under_the_table_and_in_the_csv():
    rates, sources = full(), [one for one in POPULATION if one.name != "S1"]
    rates.pop("S1")
    skipped = {"S1": "'adapters/S1' cannot be read: it is damaged", "aime24": "aime24: 'x' is not there"}
    found = replace(evaluation(rates, sources), skipped=skipped)
    text = " ".join(text_of(tables([found])).split())
    assert "Skipped S1: 'adapters/S1' cannot be read: it is damaged" in text and "Skipped aime24: 'x' is not there" in text
    (row_of_s1,) = [one for one in csv.DictReader(io.StringIO(csv_text(records([found])))) if one["row"] == "S1"]
    assert (row_of_s1["kind"], row_of_s1["value"], row_of_s1["remark"]) == ("skipped", "", skipped["S1"])
    (of_aime,) = [one for one in records([found]) if one["kind"] == "skipped" and one["column"] == "aime24"]
    assert of_aime["row"] == "" and of_aime["value"] is None
    both = tables([found, evaluation(full(), name="other")])[0].notes
    assert "run: Skipped aime24: 'x' is not there" in both


def test_the_steps_of_members_are_named():
    found = replace(evaluation(full()), steps={"T0": 200, "T1": 200, "S0": 200, "S1": 100})
    assert "Members as they were: S1 at step 100; T0, T1, S0 at step 200." in tables([found])[0].notes
    assert not any("step" in note for note in tables([evaluation(full())])[0].notes)


def test_foreign_adapters_are_not_among_the_members_that_worst_and_best_are_of():
    sources = (*POPULATION, Source("lab", "adapter"))
    rates = {**full(["amc23"]), "lab": {"amc23": 100.0}}
    table = downstream([evaluation(rates, sources)])
    best = max(rates[name]["amc23"] for name in ("T0", "T1", "S0", "S1"))
    assert row(table, "Best of 4").cells["amc23"].value == best < 100 and row(table, "Adapter lab").cells["amc23"].value == 100
    note = "Adapters that were given by themselves are not among the members that worst and best are of."
    assert note in tables([evaluation(rates, sources)])[0].notes and note not in tables([evaluation(full())])[0].notes
    two = (*POPULATION[1:2], POPULATION[3], Source("lab", "adapter"), Source("other", "adapter"))
    labels = [one.label for one in downstream([evaluation(full(["amc23"], two), two)]).blocks[0].rows]
    assert labels == ["Teacher T0", "Student S0", "Adapter, mean of 2", "lab", "other"]
    alone = two[2:]
    assert [one.label for one in downstream([evaluation(full(["amc23"], alone), alone)]).blocks[0].rows][1:3] == ["Worst of 2", "Best of 2"]


def test_an_evaluation_without_any_verdict_has_no_table():
    assert tables([Evaluation("run", POPULATION, ())]) == [] and records([Evaluation("run", POPULATION, ())]) == [] and csv_text([]) == ""


def test_all_rows_of_a_table_average_the_same_benchmarks():
    less = evaluation(full(("humaneval_plus",)), name="less")
    table = downstream([evaluation(full(), name="more"), less])
    assert "Code" in row(table, "T0", 0).cells and "Code" not in row(table, "T0", 1).cells
    assert "less T0" in text_of(tables([evaluation(full(), name="more"), less]))


def test_the_best_whole_value_of_a_column_is_bold_also_where_several_print_alike():
    rates = {"base": {"amc23": 10.0}, "T0": {"amc23": 50.0}, "T1": {"amc23": 50.0}, "S0": {"amc23": 20.0}, "S1": {"amc23": 90.0}}
    layout = tables([evaluation(rates, S1__amc23=100)])[0]
    bold = [line.label for line in layout.lines if line.entries[0].bold]
    assert bold == ["Teacher, mean of 2", "T0", "T1"]  # S1 has more, of half the items
    assert next(line for line in layout.lines if line.label == "Best of 4†").entries[0].remark == "(3/4)"
    alone = tables([evaluation({"base": {"amc23": 10.0}}, (Source("base", "base"),))])[0]
    assert not alone.lines[0].entries[0].bold


def test_readings_stand_side_by_side():
    readings = {"strict": 20, "lenient": 40}
    scores = [Score(one.name, "math500", 40, 100, 100, readings) for one in POPULATION]
    scores += [Score(one.name, "minerva_math", 30, 100, 100, {**readings, "fixed": 50}) for one in POPULATION]
    first, second = tables([Evaluation("run", POPULATION, tuple(scores))])
    values = {line.label: [entry.value for entry in line.entries] for line in second.lines}
    assert values["base, strict"] == ["20.0", "20.0", "20.0"]
    assert values["Teacher, mean of 2, fixed"] == ["40.0", "50.0", "45.0"]  # MATH-500 has no such reading: its headline
    assert not any("Worst" in label or "T0" in label for label in values)
    assert "headline reading of each benchmark: lenient." in second.notes[0] and first.lines[0].entries[1].value == "30.0"


def test_a_narrow_terminal_gets_several_tables_and_loses_nothing():
    layouts = tables([evaluation(full(), T1__mbpp_plus=50)], with_published=True)
    for width in (60, 80, 100, 200):
        text = text_of(layouts, width)
        assert max(map(len, text.splitlines())) <= width
        plain = set(re.findall(r"\S+", text))
        assert {word for line in layouts[0].lines for entry in line.entries for word in entry.plain.split()} <= plain
        assert {word for column in layouts[0].columns for word in column.split()} <= plain


@pytest.mark.parametrize("width", range(36, 60))
def test_every_part_of_a_wide_table_has_its_labels_whole_and_its_groups_named(width):
    columns = tuple(f"c{number}" for number in range(6))
    lines = tuple(Line(label, tuple(Entry("10.0") for _ in columns)) for label in ("base", "T0", "member 3"))
    text = text_of([Layout("wide", (("first group", 2), ("second group", 4)), columns, (lines,))], width)
    parts = text.count("base")
    assert (text.count("member 3"), text.count("T0"), text.count("c0")) == (parts, parts, 1) and "…" not in text
    assert text.count("first group") >= 1 and text.count("first group") + text.count("second group") in (parts, parts + 1)
    assert max(map(len, text.splitlines())) <= width


HOSTILE = r"""a_b & 50% $x$ #1 {~^} \cmd <b> | "q" * `c` [l](u)"""


def test_latex_has_as_many_columns_in_every_row_and_closes_what_it_opens():
    rates = full()
    sources = tuple(Source(HOSTILE + one.name, one.role) for one in POPULATION)
    text = latex(tables([evaluation({HOSTILE + name: own for name, own in rates.items()}, sources)], with_published=True)[0], "tab:x")
    body = text.split(r"\toprule")[1].split(r"\bottomrule")[0]
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    for line in rows:
        bare = re.sub(r"\\[&\\]", "", line)
        spanned = sum(int(count) - 1 for count in re.findall(r"\\multicolumn\{(\d+)\}", line))
        assert bare.count("&") + spanned == 13, line
        assert line.count("$") - line.count(r"\$") == 2 * line.count(r"$\pm$")
    assert len(rows) == 2 + 9 + 14
    bare = re.sub(r"\\[{}\\]", "", text)
    assert bare.count("{") == bare.count("}") and r"\begin{tabular}{l *{3}{r} @{\hskip 4pt} *{7}{r} @{\hskip 4pt} *{3}{r}}" in text
    for name in ("table", "tabular"):
        assert text.count(rf"\begin{{{name}}}") == text.count(rf"\end{{{name}}}") == 1
    assert r"\cmidrule(lr){2-4} \cmidrule(lr){5-11} \cmidrule(lr){12-14}" in text


@given(st.text())
def test_latex_text_has_no_bare_special_character(text: str):
    escaped = tex(text)
    bare = re.sub(r"\\(text(backslash|asciitilde|asciicircum|less|greater|bar|dagger)\{\}|[&%$#_{}])", "", escaped)
    bare = re.sub(r"\$\\pm\$|\$-\$|\$\\times\$|\$\\leq\$|^\{\}", "", bare)
    assert not set(bare) & set(r"\&%$#_{}~^<>|") and "\n" not in bare


def test_latex_text_reads_as_it_was_written():
    assert tex(r"a_b\c~") == r"a\_b\textbackslash{}c\textasciitilde{}" and tex("two\nlines") == "two lines"
    assert tex("[run]") == "{}[run]" and tex("*run") == "{}*run"  # else the line break before it would take them


def test_markdown_has_as_many_columns_in_every_row():
    layout = Layout("a|b", (("", 2),), ("x", "y|z"), ((Line(HOSTILE, (Entry("1.0", "0.5", "(3/4)", True), Entry())),),), ("note *",))
    text = markdown(layout)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 3 and all(len(re.findall(r"(?<!\\)\|", line)) == 4 for line in table)
    assert "**1.0±0.5 (3/4)**" in text and r"\*" in text


def test_a_layout_of_uneven_lines_is_refused():
    with pytest.raises(ValueError, match="one width"):
        Layout("", (("", 2),), ("x", "y"), ((Line("a", (Entry(),)),),))


def test_records_are_unrounded_and_have_every_reading():
    score = Score("base", "humaneval_plus", 130, 164, 164, {"strict": 100})
    rows = records([Evaluation("run", (Source("base", "base"),), (score,))], with_published=True)
    read = list(csv.DictReader(io.StringIO(csv_text(rows))))
    by_reading = {one["reading"]: one for one in read if one["row"] == "base" and one["column"] == "humaneval_plus"}
    assert float(by_reading["headline"]["value"]) == 100 * 130 / 164 and float(by_reading["strict"]["value"]) == 100 * 100 / 164
    assert by_reading["headline"]["std"] == "" and any(one["reading"] == "published" for one in read)


def test_files_are_written_beside_each_other(tmp_path: Path):
    evaluations = [evaluation(full())]
    files = write_tables(tmp_path, "downstream", tables(evaluations), records(evaluations))
    assert [file.name for file in files] == ["downstream.md", "downstream.tex", "downstream.csv"]
    assert all(file.stat().st_size > 500 for file in files) and r"\label{tab:downstream}" in files[1].read_text()
