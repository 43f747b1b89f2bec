"""The verifier's Python API, as its documentation shows it."""

from dataclasses import replace

import pytest

from populora.core.config import TasksConfig
from populora.core.types import VerdictKind
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import PROFILES
from populora.tasks.checks import check_answer, check_input, check_solution, run_program

ADD = "def f(x):\n    return x + 1"
COIN = "import random\ndef f(x): return random.choice([x, -x, 0])"
STRICT = TasksConfig(equality="strict", banned_imports=("math",))


@pytest.fixture(scope="module")
def pool():
    with SandboxPool(replace(PROFILES["training"], cpu_seconds=0.5), workers=1, allow_weak=True) as started:
        yield started


def test_a_program_has_a_value_or_a_reason(pool):
    assert run_program(pool, ADD, "41").values[0].literal == "42"
    assert run_program(pool, "def f(x): return 1 // x", "0").reason == "exception:ZeroDivisionError"
    assert run_program(pool, COIN, "5").kind is VerdictKind.REJECTED_NONDETERMINISTIC
    assert run_program(pool, "import math\ndef f(x): return math.pi", "5", STRICT).reason == "banned_import"


def test_any_input_with_the_output_is_right(pool):
    remainder = "def f(x): return x % 7"
    assert check_input(pool, remainder, "12", "5").correct and check_input(pool, remainder, "5", "5.0").correct
    assert check_input(pool, remainder, "4", "5").kind == "wrong"
    assert check_input(pool, remainder, "5) or (5", "5").kind == "not_a_literal"
    assert check_input(pool, remainder, "5", "5.0", STRICT).kind == "wrong"
    assert not check_input(pool, COIN, "5", "5").correct


def test_answers_are_compared_as_values(pool):
    assert check_answer(pool, "{'b': 1, 'a': 2}", "{'a': 2, 'b': 1}").correct
    assert check_answer(pool, "2 - 1", "1").kind == "not_a_literal"
    assert check_answer(pool, "True", "1", STRICT).kind == "wrong"


def test_a_solution_is_right_if_all_pairs_are(pool):
    assert check_solution(pool, ADD, [("1", "2"), ("-1", "0")]).correct
    assert check_solution(pool, ADD, [("1", "2"), ("-1", "1")]).kind == "wrong"
    assert check_solution(pool, "def f(x):\n    while x: pass\n    return 1", [("0", "1"), ("1", "1")]).kind == "cpu"
    assert not check_solution(pool, COIN, [("0", "0"), ("1", "1")]).correct


def test_an_expected_output_that_is_no_literal_is_the_callers_mistake(pool):
    for found in (check_answer(pool, "1", "f(1)"), check_input(pool, ADD, "1", "x"), check_solution(pool, ADD, [("1", "")])):
        assert not found.correct and found.kind == "expected_output:not_a_literal"


def test_the_expected_output_is_in_no_request_that_holds_the_answer(pool, monkeypatch):
    from populora.sandbox.process import Zygote

    seen, real = [], Zygote.exchange
    monkeypatch.setattr(Zygote, "exchange", lambda self, request, bound: (seen.append(request), real(self, request, bound))[1])
    check_input(pool, ADD, "70", "7391")
    check_solution(pool, ADD, [("70", "7391")])
    check_answer(pool, "70", "7391")
    assert len(seen) == 8 and not any(b"7391" in request and b"70" in request.replace(b"7391", b"") for request in seen)
    assert sum(b"7391" in request for request in seen) == 3
