"""The paper's table computed again from itself: what it means, and where it is not at one with itself."""

import itertools
import statistics

import pytest

from populora.evals.aggregates import ScoreRow, aggregates_over, paper_footnotes, paper_rows
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.downstream_table import downstream_tables
from populora.evals.eval_records import EvalModel, Evaluation, Score

TEN = tuple(name for name, benchmark in BENCHMARKS.items() if benchmark.group in ("code", "math"))
ROWS = {row.label: row for rows in paper_rows().values() for row in rows}
IN_TABLE = {label: row for label, row in ROWS.items() if not label.startswith("main text")}
COUNTS = {"humaneval_plus": 130, "mbpp_plus": 258, "livecodebench": 126, "aime24": 2, "aime25": 1, "amc23": 15}


def rounded(row: ScoreRow, names: tuple[str, ...]) -> float:
    return statistics.fmean(row.cells[name].value for name in names)


@pytest.mark.parametrize("label", IN_TABLE)
def test_aggregates_of_every_row_are_means_of_their_benchmarks(label: str):
    """Of values rounded to 0.1, so up to 0.05 off, and printed to 0.1. This also shows what the aggregates of Worst and Best are."""
    for name, over in aggregates_over(TEN).items():
        assert IN_TABLE[label].cells[name].value == pytest.approx(rounded(IN_TABLE[label], over), abs=0.1)


def test_the_base_has_its_aggregates_only_before_rounding():
    row = ROWS["Qwen2.5-Coder-7B"]
    assert [row.cells[name].value for name in ("Code", "Math", "All")] == [53.9, 32.3, 38.8]
    code = aggregates_over(TEN)["Code"]
    assert round(rounded(row, code), 1) == 54.0
    assert round(statistics.fmean(100 * COUNTS[name] / BENCHMARKS[name].items for name in code), 1) == 53.9


@pytest.mark.parametrize("population, members", [("4T+4S", 4), ("8T+8S", 8)])
@pytest.mark.parametrize("role", ["Teacher", "Student"])
@pytest.mark.parametrize("name", ["aime24", "aime25"])
def test_the_spread_of_populations_is_the_sample_deviation(population: str, members: int, role: str, name: str):
    """No scores of 30 items between Worst and Best have the printed mean and, as the population's deviation, the printed spread."""
    worst, cell, best = (ROWS[f"{population} {row}"].cells[name] for row in ("Worst", role, "Best"))
    assert cell.std is not None
    counts = range(round(worst.value * 0.3), round(best.value * 0.3) + 1)
    combinations = itertools.combinations_with_replacement([100 * count / 30 for count in counts], members)
    fitting = [values for values in combinations if abs(statistics.fmean(values) - cell.value) < 0.0501]
    assert any(abs(statistics.stdev(values) - cell.std) < 0.0501 for values in fitting)
    assert not any(abs(statistics.pstdev(values) - cell.std) < 0.0501 for values in fitting)


def test_the_spread_of_an_aggregate_is_the_mean_of_the_spreads_of_its_columns():
    for row in ROWS.values():
        for name, over in aggregates_over(TEN).items() if row.cells["humaneval_plus"].std is not None else ():
            spreads = [row.cells[benchmark].std for benchmark in over]
            assert row.cells[name].std == pytest.approx(statistics.fmean(spread for spread in spreads if spread is not None), abs=0.101)


def test_laid_beside_fewer_benchmarks_the_papers_aggregates_are_over_the_same():
    base = EvalModel("base", "base")
    ours = Evaluation("run", (base,), tuple(Score("base", name, 1, 2, 2, {}) for name in ("humaneval_plus", "mbpp_plus", "amc23")))
    layout = downstream_tables([ours], paper=True)[0]
    assert layout.columns == ("HE+", "MBPP+", "AMC", "Code (2/3)", "Math (1/7)", "All (3/10)")
    paper = {line.label: [cell.text for cell in line.cells] for line in layout.rows}
    assert paper["Qwen2.5-Coder-7B"] == ["79.3", "68.3", "37.5", "73.8", "37.5", "61.7"]
    assert paper["Baseline AZR (LoRA)"][3] == f"{(79.0 + 68.1) / 2:.1f}"  # without a spread, for none can be had
    assert all(note in layout.footnotes for note in paper_footnotes())
