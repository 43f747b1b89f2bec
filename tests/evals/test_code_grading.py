"""HumanEval+ and MBPP+ by evalplus in the sandbox, on items made here. The published items are in test_published_gold.py."""

import pytest

from populora.evals.benchmarks import BENCHMARKS
from populora.evals.eval_records import Item
from populora.evals.graders.code import TIMES, grade_code

HUMANEVAL, MBPP = BENCHMARKS["humaneval_plus"], BENCHMARKS["mbpp_plus"]
PROMPT = 'def double(x):\n    """Twice x."""\n'


def item(
    name="HumanEval/900", prompt=PROMPT, entry_point="double", canonical="    return 2 * x\n", base=((1,), (2,)), plus=((0,), (-3,)), atol=0
):
    inputs = {"base_input": [list(arguments) for arguments in base], "plus_input": [list(arguments) for arguments in plus]}
    return Item(
        name, {"task_id": name, "prompt": prompt, "entry_point": entry_point, "canonical_solution": canonical, "atol": atol, **inputs}
    )


@pytest.fixture(scope="module")
def verdict(pool_of):
    def of(problem, solution, benchmark=HUMANEVAL):
        return grade_code(pool_of(benchmark.name), benchmark, problem, solution, is_solution=True).reason

    return of


@pytest.mark.parametrize(
    "solution, reason",
    [
        ("def double(x):\n    return x + x", ""),
        ("def double(x):\n    return 2.0 * x", ""),  # 2.0 == 2
        ("def double(x):\n    return 2 if x == 1 else 4", "wrong:plus:0"),
        ("def double(x):\n    raise SystemExit(0)", "wrong:base:0"),
        ("import os\ndef double(x):\n    os._exit(0)", "error:exit_without_result"),
        ("def double(x)\n    return 2 * x", "not_loadable"),
        ("", "no_answer"),
        ("def double(x):\n    return open('/tmp/x', 'w')", "wrong:base:0"),
        ("print('hello')\ndef double(x):\n    print(x)\n    return 2 * x", ""),
    ],
)
def test_a_solution_passes_if_all_its_tests_do(verdict, solution, reason):
    assert verdict(item(), solution) == reason


def test_floats_are_compared_with_a_tolerance_and_types_are_not_mixed_there(verdict):
    third = item(entry_point="third", prompt="def third(x):\n", canonical="    return x / 3\n")
    assert verdict(third, "def third(x):\n    return x * (1 / 3) + 1e-9") == ""
    assert verdict(third, "def third(x):\n    return x / 3 + 1e-3") == "wrong:base:0"


def test_a_root_of_humaneval_32_is_judged_by_the_polynomial_not_by_the_reference_root(verdict):
    """evalplus 0.3.1 leaves this test unrecorded, so that no solution at all passes."""
    prompt = "def find_zero(xs):\n"
    problem = item("HumanEval/32", prompt, "find_zero", "    return 1.0\n", base=([[-1, 0, 1]],), plus=([[-4, 0, 1]],), atol=1e-4)
    assert verdict(problem, "def find_zero(xs):\n    return -((-xs[0]) ** 0.5)") == ""  # the other root
    assert verdict(problem, "def poly(xs, x):\n    return 0\ndef find_zero(xs):\n    return 0.0") == "wrong:base:0"
    assert verdict(problem, "def find_zero(xs):\n    return None") == "wrong:base:0"
    assert verdict(problem, "x = 1") == "not_loadable"


def test_an_mbpp_task_that_is_compared_as_a_set_is_and_its_inputs_become_tuples(verdict):
    prompt = '"""\nShared elements.\n"""\n'
    canonical = "def similar_elements(a, b):\n    return tuple(set(a) & set(b))\n"
    problem = item("Mbpp/2", prompt, "similar_elements", canonical, base=(([1, 2, 3], [3, 2]),), plus=())
    assert verdict(problem, "def similar_elements(a, b):\n    assert type(a) is tuple\n    return [3, 2]", MBPP) == ""
    assert verdict(problem, "def similar_elements(a, b):\n    return [3]", MBPP) == "wrong:base:0"


@pytest.mark.slow
@pytest.mark.parametrize(
    "caught, reasons",
    [("Exception", {"timeout:base:0"}), ("BaseException", {"error:exit_without_result", "timeout:base:0"})],
    ids=["cannot", "will not"],
)
def test_a_loop_without_end_is_ended_by_its_tests_time(verdict, monkeypatch, caught, reasons):
    """A program that catches what wakes it is ended a little later, with its process; or at once, if it is woken outside its ``try``."""
    assert TIMES["test_seconds"] == 10.0  # AZR's least
    monkeypatch.setitem(TIMES, "test_seconds", 1.0)
    stubborn = f"    while True:\n        try:\n            while True:\n                pass\n        except {caught}:\n            pass"
    assert verdict(item(), f"def double(x):\n{stubborn}") in reasons


@pytest.mark.parametrize(
    "completion, strict, lenient",
    [
        ("def double(x):\n    return 2 * x", True, True),  # the prompt opened a fence, the stop text closed it
        ("def double(x):\n    return 2 * x\n```\nIt doubles.", True, True),
        ("def double(x):\n    return 2 * x\n```\nUse it:\n```python\nprint(double(2))\n```", True, True),
        ("Sure!\n```python\ndef double(x):\n    return 2 * x\n```\nDone.", True, True),
        ("Sure! This does it:\n\ndef double(x):\n    return 2 * x\n\nand that is all.", False, True),
        ("I do not know.", False, False),
        ("```python\ndef double(x):\n    return 3 * x\n```", False, False),
    ],
)
def test_code_is_taken_where_it_was_asked_for_or_as_evalplus_finds_it(pool_of, completion, strict, lenient):
    grade = grade_code(pool_of("humaneval_plus"), HUMANEVAL, item(), completion)
    assert grade.modes == {"strict": strict, "lenient": lenient} and grade.correct == lenient


def test_a_solution_that_never_finishes_loading_is_ended(pool_of, monkeypatch):
    monkeypatch.setitem(TIMES, "check_seconds", 0.5)
    grade = grade_code(pool_of("humaneval_plus"), HUMANEVAL, item(), "while True:\n    pass", is_solution=True)
    assert grade.reason == "timeout:base:0"


@pytest.mark.parametrize("reply", ['{"verdict": 5}', "no JSON", "[" * 100_000])
def test_a_solution_that_writes_another_answer_than_a_harness_gives_is_wrong(pool_of, reply):
    """It shares its process with the harness: the worst that a reply of another form may do is to fail it."""
    literal = repr({"kind": "ok", "values": [reply], "doubtful": False})
    forging = (
        "import json, os, struct\n"
        f"body = json.dumps([{literal}]).encode()\n"
        "os.write(3, struct.pack('>I', len(body)) + body)\nos._exit(0)\ndef double(x):\n    return 2 * x\n"
    )
    assert grade_code(pool_of("humaneval_plus"), HUMANEVAL, item(), forging, is_solution=True).reason == "forged"


def test_an_extraction_that_takes_too_long_says_so(pool_of, monkeypatch):
    monkeypatch.setitem(TIMES, "extraction_seconds", 0.2)
    grade = grade_code(pool_of("humaneval_plus"), HUMANEVAL, item(), "prose without end\n" * 400 + "def double(x):\n    return 2 * x")
    assert grade.reason == "extraction_timeout" and not grade.correct


def test_an_extraction_that_takes_too_long_does_not_fail_the_mode_without_one(pool_of, monkeypatch):
    monkeypatch.setitem(TIMES, "extraction_seconds", 0.2)
    text = "```python\ndef double(x):\n    return 2 * x\n```\n" + "prose without end\n" * 400
    grade = grade_code(pool_of("humaneval_plus"), HUMANEVAL, item(), text)
    assert grade.modes == {"strict": True, "lenient": False} and grade.reason == "extraction_timeout" and not grade.correct
