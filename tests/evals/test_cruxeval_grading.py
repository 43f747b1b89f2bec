"""CRUXEval's guards and verdicts, on an item made here; the published items are in test_published_gold.py."""

import pytest

from populora.core.errors import SandboxFault
from populora.core.types import VerdictKind
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.eval_records import Item
from populora.evals.graders.cruxeval import grade_cruxeval
from populora.sandbox.protocol import Verdict

CODE = "def f(xs):\n    return {x: xs.count(x) for x in xs}"
ITEM = Item("sample_0", {"id": "sample_0", "code": CODE, "input": "[1, 1, 2]", "output": "{1: 2, 2: 1}"})


@pytest.fixture(scope="module")
def graded(pool_of):
    def of(mode, completion):
        return grade_cruxeval(pool_of(f"cruxeval_{mode}"), BENCHMARKS[f"cruxeval_{mode}"], ITEM, completion)

    return of


@pytest.mark.parametrize(
    "completion, reason",
    [
        ("f([1, 1, 2])", ""),
        ("f([1, 2, 1])", ""),  # any input with that output
        ("[1, 1, 2]", "no_call"),
        ("f([1])", "wrong"),
        ("f([1, 1, 2]) == {1: 2, 2: 1}", ""),  # as the official assertion reads it
        ("f([1]) == {1: 2, 2: 1}", "error:exception:ValueError"),
        ("f([1, 1, 2])\nassert True", ""),  # what base models go on to write
        ("f([1, 1, 2])\nassert False", "error:exception:AssertionError"),
        ('f([1, 1, 2]), "since it counts"', ""),  # the message of an assertion
        ('assert f([1, 1, 2]) == {1: 2, 2: 1}, "since it counts"', ""),  # a whole assertion is read as its call
        ("assert f([1, 1, 2]) == 5", ""),  # whatever it claims that the call gives
        ("assert f([1]) == {1: 2, 2: 1}, 'wrong input'", "wrong"),
        ("[ANSWER]assert f([1, 1, 2]) == {1: 2, 2: 1}, 'x'[/ANSWER]", ""),
        ("assert {1: 2, 2: 1} == f([1, 1, 2])", "error:exception:ValueError"),
        ("[ANSWER]f([1, 1, 2])[/ANSWER]", ""),
        ("f([1, 1, 2]) or 5", "error:exception:ValueError"),
        ("", "no_answer"),
    ],
)
def test_an_input_is_right_if_it_leads_to_the_output(graded, completion, reason):
    assert graded("input", completion).reason == reason


@pytest.mark.parametrize(
    "completion, reason",
    [
        ("{1: 2, 2: 1}", ""),
        ("dict([(1, 2), (2, 1)])", ""),  # an expression, as in CRUXEval's own grader
        ("__import__('collections').Counter([1, 1, 2])", ""),  # equal in Python
        ("f([1, 1, 2])", "calls_program"),
        ("{1: 2}", "wrong"),
        ("{1: 2, 2: float('nan')}", "error:unsupported_value"),
        ("{1: __import__('numpy').int64(2), 2: __import__('decimal').Decimal(1)}", ""),
        ("{1: 2, 2: 1} == {2: 1, 1: 2} != 5", ""),
        ("assert f([1,1, 2]) == 'nonsense'", "error:exception:SyntaxError"),  # only an input is read out of a whole assertion
        ("[ANSWER]assert f([1,1, 2]) == 5[/ANSWER]", "error:exception:SyntaxError"),
        ("type('E', (), {'__eq__': lambda *_: True})()", "error:unsupported_value"),
    ],
)
def test_an_output_is_right_if_it_is_equal_and_not_asked_of_the_program(graded, completion, reason):
    assert graded("output", completion).reason == reason


@pytest.mark.parametrize(
    "mode, completion, strict, lenient",
    [
        ("input", "hm</think> <answer>```input\n[1, 2, 1]\n```</answer>", True, True),
        ("input", "hm</think> <answer>```input\n[1, 2, 1]  # two of 1\n```</answer>", True, True),
        ("input", "hm</think> <answer># Input: [1, 2, 1]\n</answer>", False, True),
        ("input", "hm</think> <answer>```input\nassert f([1, 2, 1]) == 0, 'so'\n```</answer>", True, True),
        ("input", "hm</think> <answer>```input\n```</answer>", False, False),  # f() lacks its argument
        ("output", "hm</think> <answer>```output\n{1: 2, 2: 1}\n```</answer>", True, True),
        ("output", "hm</think> <answer>the output is {1: 2, 2: 1}\n</answer>", False, True),
        ("output", "hm</think> <answer></answer>", False, False),
        ("output", "a ``` fence ``` in the thoughts [ANSWER]{1: 2, 2: 1}[/ANSWER]", True, True),
    ],
)
def test_answers_to_our_prompts_stand_in_a_fence_or_where_azr_looks_beyond_it(graded, mode, completion, strict, lenient):
    assert graded(mode, completion).modes == {"strict": strict, "lenient": lenient}


def test_a_failure_of_the_sandbox_is_no_wrong_answer():
    class Broken:
        def run(self, jobs):
            return [Verdict(VerdictKind.INTERNAL, "sandbox_failed")] * len(jobs)

    with pytest.raises(SandboxFault, match="grade again"):
        grade_cruxeval(Broken(), BENCHMARKS["cruxeval_output"], ITEM, "{1: 2, 2: 1}")


def test_a_program_that_runs_too_long_is_ended(graded):
    assert graded("output", "(lambda: [0 for _ in iter(int, 1)])()").reason == "out_of_resources"
