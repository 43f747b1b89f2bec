"""The benchmarks' own solutions are right, and answers that cannot be right are not: the numbers of docs/measurements.md."""

import pytest
from benchmarks.evaluation.gold import Check, as_expected, checks_of, row

from populora.evals.benchmarks import BENCHMARKS
from populora.evals.data import find_data, load_items
from populora.evals.grading import open_grader

NAMES = ("humaneval_plus", "mbpp_plus", "cruxeval_input", "cruxeval_output")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name, check", [pytest.param(name, check, id=f"{name}: {check.what}") for name in NAMES for check in checks_of(name)]
)
def test_answers_whose_verdict_is_known_get_it(benchmark_data, name: str, check: Check):
    benchmark = BENCHMARKS[name]
    items = load_items(benchmark, find_data(benchmark, str(benchmark_data)))
    with open_grader(benchmark, 2, allow_weak=True) as grader:
        verdicts = row(name, items, check, grader)
    assert len(items) == benchmark.items and as_expected(verdicts), verdicts
