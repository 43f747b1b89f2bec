"""The mathematics graders on the benchmarks' own gold answers: what has to be accepted, what must not be, and what is known to go wrong.

The data files are read from the folder in ``POPULORA_BENCHMARK_DATA``. math-verify is called here, without the sandbox.
"""

import re
from itertools import pairwise

import pytest

from populora.evals.benchmarks import BENCHMARKS
from populora.evals.data import find_data, load_items
from populora.evals.graders.mathematics import gold_of, grade_answers

INTEGERS = {"aime24": 30, "aime25": 30, "amc23": 40, "math500": 311, "minerva_math": 63, "gsm8k": 1319, "olympiadbench": 366}
NAMES = [pytest.param(name, marks=pytest.mark.thorough if BENCHMARKS[name].items > 100 else ()) for name in INTEGERS]
FORMS = ("\\boxed{%s}", "We see 3 of them.\n\nThe final answer is $\\boxed{%s}$.")


@pytest.fixture
def golds(name, benchmark_data):
    """The items of a benchmark with their gold answers."""
    benchmark = BENCHMARKS[name]
    return [(item, gold_of(benchmark, item)) for item in load_items(benchmark, find_data(benchmark, str(benchmark_data)))]


@pytest.mark.parametrize("name", NAMES)
def test_every_gold_answer_is_right_in_a_box_and_lenient_also_in_a_sentence(compare, name, golds):
    right = {"strict": 0, "lenient": 0, "sentence": 0}
    for item, gold in golds:
        boxes = [grade_answers(compare, BENCHMARKS[name], item, form % gold) for form in FORMS]
        sentence = grade_answers(compare, BENCHMARKS[name], item, f"We see 3 of them. The answer is {gold}.\nDone.")
        right["strict"] += all(grade.modes["strict"] for grade in boxes)
        right["lenient"] += all(grade.correct and not grade.reason for grade in boxes)
        right["sentence"] += sentence.correct and not sentence.modes["strict"]
    assert right == dict.fromkeys(right, len(golds))


@pytest.mark.parametrize("name", NAMES)
def test_one_more_than_an_integer_is_never_right(compare, name, golds):
    integers = 0
    for item, gold in golds:
        whole = re.fullmatch(r"(-?[0-9]+)(?:\.0)?", gold.replace(",", "") if name == "gsm8k" else gold)
        integers += whole is not None
        for form in (*FORMS, "The answer is %s.", "which makes %s in all\n#### %s") if whole else ():
            more = form.replace("%s", str(int(whole[1]) + 1))
            grade = grade_answers(compare, BENCHMARKS[name], item, more)
            assert not any(grade.modes.values()) and grade.reason == "wrong", (item.id, gold, more)
    assert integers == INTEGERS[name]


@pytest.mark.parametrize("name", NAMES)
def test_the_next_items_gold_answer_is_wrong(compare, name, golds):
    accepted = [
        (index, gold, other)
        for index, ((item, gold), (_, other)) in enumerate(pairwise(golds))
        if gold != other and any(grade_answers(compare, BENCHMARKS[name], item, f"\\boxed{{{other}}}").modes.values())
    ]
    assert accepted == ([(22, "5", "x=5")] if name == "math500" else [])  # the same answer


KNOWN = {
    ("\\frac{1}{2004!}", "\\frac{1}{2006!}"): "equal",
    ("\\frac{1}{2^{99}}", "\\frac{1}{2^{98}}"): "equal",
    ("n=2, 3, 4", "n=1, 2, 3"): "different",
    ("D = (0, 1)", "D = (0, 1.5)"): "different",
    ("F_n = \\sum_{k=0}^{n-1} F_k F_{n-k-1}", "F_n = \\sum_{k=0}^{n-2} F_k F_{n-k-2}"): "different",
    ("19, 46, \\text{ and } 82", "21, 36, and 82"): "different",
    ("\\frac{2^{2005}+1}{3 \\cdot 2^{2006}}", "\\frac{1}{3 \\cdot 2^{2006}}"): "equal",
    ("1 - \\frac{1}{\\mathrm{e}}", "1 + \\frac{1}{\\mathrm{e}}"): "different",
    ("\\pm 2021", "2021"): "different",
    ("12:00", "1:00"): "different",
    ("1, 2, \\ldots, n", "1, 3, 5, \\ldots, 2n-1"): "equal",
    ("1:2:3:\\ldots", "1:4:9:\\ldots"): "different",
    ("10", "10\\%"): "equal",
    ("2220_8", "2220"): "equal",
    ("\\frac{1}{m} t", "\\frac{1}{m}"): "equal",
    ("6m", "6"): "equal",
}
"""Pairs of different answers: those of math-verify's issue 14, and four of ours (two of them gold answers)."""


@pytest.mark.parametrize(("gold", "answer"), KNOWN)
def test_the_known_wrong_acceptances_of_math_verify_are_as_documented(compare, gold, answer):
    assert compare(gold, answer) == KNOWN[gold, answer]
