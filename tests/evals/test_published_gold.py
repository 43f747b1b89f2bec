"""The benchmarks' own solutions are right, and answers that cannot be right are not: the numbers of docs/evaluation.md."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from populora.evals.benchmarks import BENCHMARKS
from populora.evals.data import find_data, load_items
from populora.evals.graders.code import grade_code
from populora.evals.graders.cruxeval import grade_cruxeval

pytestmark = pytest.mark.thorough


@pytest.fixture
def failing(benchmark_data, pool_of):
    """Items whose answer, a function of the item and its successor, is not correct."""

    def find(name, grade, answer, **options):
        which, pool = BENCHMARKS[name], pool_of(name)
        items = load_items(which, find_data(which, str(benchmark_data)))
        with ThreadPoolExecutor(2) as graders:
            pairs = zip(items, [*items[1:], items[0]], strict=True)
            grades = list(graders.map(lambda pair: grade(pool, which, pair[0], answer(*pair), **options), pairs))
        assert len(grades) == which.items
        return [verdict.item_id for verdict in grades if not verdict.correct]

    return find


def canonical(item, _):
    return item.fields["prompt"] + item.fields["canonical_solution"]


def nothing(item, _):
    return f"def {item.fields['entry_point']}(*args, **kwargs):\n    return None"


@pytest.mark.parametrize("name", ["humaneval_plus", "mbpp_plus"])
def test_every_canonical_solution_is_right(failing, name):
    assert failing(name, grade_code, canonical, is_solution=True) == []


@pytest.mark.parametrize("name", ["humaneval_plus", "mbpp_plus"])
def test_returning_nothing_is_always_wrong(failing, name):
    assert len(failing(name, grade_code, nothing, is_solution=True)) == BENCHMARKS[name].items


def test_every_gold_input_and_output_of_cruxeval_is_right(failing):
    assert failing("cruxeval_input", grade_cruxeval, lambda item, _: f"f({item.fields['input']})") == []
    assert failing("cruxeval_output", grade_cruxeval, lambda item, _: item.fields["output"]) == []


def test_a_neighbours_answer_is_right_only_where_it_happens_to_be(failing):
    """18 inputs lead to the same output; 3 outputs are the same literal, 5 are True or False against 1 or 0."""
    assert len(failing("cruxeval_input", grade_cruxeval, lambda _, other: f"f({other.fields['input']})")) == 800 - 18
    assert len(failing("cruxeval_output", grade_cruxeval, lambda _, other: other.fields["output"])) == 800 - 8
