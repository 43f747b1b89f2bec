"""The verifier's Python API, as its documentation shows it."""

from dataclasses import replace

import pytest

from populora.core.config import TasksConfig
from populora.core.errors import SandboxFault
from populora.core.types import VerdictKind
from populora.sandbox.protocol import PROFILES, Verdict
from populora.tasks.checks import Verifier

ADD = "def f(x):\n    return x + 1"
COIN = "import random\ndef f(x): return random.choice([x, -x, 0])"
LIMITS = replace(PROFILES["training"], cpu_seconds=0.5)


@pytest.fixture(scope="module")
def verifier():
    with Verifier(LIMITS, allow_weak=True) as started:
        yield started


@pytest.fixture(scope="module")
def strict():
    with Verifier(LIMITS, allow_weak=True, tasks=TasksConfig(equality="strict", banned_imports=("math",))) as started:
        yield started


def test_a_program_has_a_value_or_a_reason(verifier, strict):
    assert verifier.run_program(ADD, "41").values[0].literal == "42"
    assert verifier.run_program("def f(x): return 1 // x", "0").reason == "exception:ZeroDivisionError"
    assert verifier.run_program(COIN, "5").kind is VerdictKind.REJECTED_NONDETERMINISTIC
    assert strict.run_program("import math\ndef f(x): return math.pi", "5").reason == "banned_import"


def test_any_input_with_the_output_is_right(verifier, strict):
    remainder = "def f(x): return x % 7"
    assert verifier.check_input(remainder, "12", "5").correct and verifier.check_input(remainder, "5", "5.0").correct
    assert verifier.check_input(remainder, "4", "5").kind == "wrong"
    assert verifier.check_input(remainder, "5) or (5", "5").kind == "not_a_literal"
    assert strict.check_input(remainder, "5", "5.0").kind == "wrong"
    assert not verifier.check_input(COIN, "5", "5").correct


def test_answers_are_compared_as_values(verifier, strict):
    assert verifier.check_answer("{'b': 1, 'a': 2}", "{'a': 2, 'b': 1}").correct
    assert verifier.check_answer("2 - 1", "1").kind == "not_a_literal"
    assert strict.check_answer("True", "1").kind == "wrong"


def test_a_solution_is_right_if_all_pairs_are(verifier):
    assert verifier.check_solution(ADD, [("1", "2"), ("-1", "0")]).correct
    assert verifier.check_solution(ADD, [("1", "2"), ("-1", "1")]).kind == "wrong"
    assert verifier.check_solution("def f(x):\n    while x: pass\n    return 1", [("0", "1"), ("1", "1")]).kind == "cpu"
    assert not verifier.check_solution(COIN, [("0", "0"), ("1", "1")]).correct


def test_a_sandbox_that_fails_is_no_wrong_answer(monkeypatch):
    with Verifier(LIMITS, allow_weak=True) as failing:
        monkeypatch.setattr(failing._pool, "run", lambda jobs, twice=False: [Verdict(VerdictKind.INTERNAL, "sandbox_failed")] * len(jobs))
        for ask in (
            lambda: failing.run_program(ADD, "1"), lambda: failing.check_answer("1", "1"), lambda: failing.check_input(ADD, "1", "2"),
            lambda: failing.check_solution(ADD, [("1", "2")]),
        ):  # fmt: skip
            with pytest.raises(SandboxFault, match="ask again"):
                ask()


def test_an_expected_output_that_is_no_literal_is_the_callers_mistake(verifier):
    for check in (verifier.check_answer("1", "f(1)"), verifier.check_input(ADD, "1", "x"), verifier.check_solution(ADD, [("1", "")])):
        assert not check.correct and check.kind == "expected_output:not_a_literal"


ROWS = "t(a,b)\n1,'x'\n2,NULL\n3,'x'"


@pytest.fixture(scope="module")
def sql():
    with Verifier(LIMITS, allow_weak=True, domain="sql") as started:
        yield started


def test_statements_have_results_or_reasons(sql):
    assert sql.run_program("SELECT b, count(*) FROM t GROUP BY b", ROWS).values[0].literal == "NULL,1\n'x',2"
    assert sql.run_program("DELETE FROM t", ROWS).reason == "not_one_select"
    assert sql.run_program("SELECT a FROM t", "t(a)\n1,2").reason == "malformed_database"
    assert sql.run_program("SELECT a FROM t ORDER BY b LIMIT 2", ROWS).kind is VerdictKind.REJECTED_NONDETERMINISTIC


def test_the_statement_says_whether_the_order_of_rows_counts(sql):
    answer = "t(a)\n2\n1\n3"
    assert sql.check_input("SELECT a FROM t", answer, "3\n1\n2").correct
    assert sql.check_input("SELECT a FROM t ORDER BY a", answer, "1\n2\n3.0").correct
    assert sql.check_input("SELECT a FROM t ORDER BY a", answer, "3\n1\n2").kind == "wrong"
    assert sql.check_solution("SELECT a FROM t ORDER BY a", [(answer, "1\n2\n3"), (ROWS, "1\n2\n3")]).correct
    assert sql.check_solution("SELECT a FROM t ORDER BY a", [(answer, "1\n2\n3"), (ROWS, "3\n2\n1")]).kind == "wrong"


def test_answered_results_are_named_by_what_is_wrong_with_them(sql):
    assert sql.check_answer("1.0,'x'", "1,'x'").correct
    kinds = [sql.check_answer(answer, "1,'x'").kind for answer in ("1", "2,'x'", "1,x", "no rows")]
    assert kinds == ["wrong_width", "wrong", "malformed_table", "wrong"]
    assert sql.check_answer("1", "1,").kind == "expected_output:malformed_table"


UNORDERED, ORDERED, TWO_ROWS = "SELECT a FROM t", "SELECT a FROM t ORDER BY a", "t(a)\n1\n2"


def test_an_answered_result_may_have_another_order_only_if_the_statement_orders_nothing(sql):
    assert sql.check_answer("2\n1", "1\n2", UNORDERED, TWO_ROWS).correct
    assert sql.check_answer("2\n1", "1\n2", ORDERED, TWO_ROWS).kind == "wrong"
    assert sql.check_answer("1\n2.0", "1\n2", ORDERED, TWO_ROWS).correct
    assert sql.check_answer("2\n2", "1\n2", UNORDERED, TWO_ROWS).kind == "wrong"
    assert sql.check_answer("2\n1", "1\n2").kind == "wrong"


def test_an_expected_output_that_is_not_the_programs_is_the_callers_mistake(sql, verifier):
    kinds = [sql.check_answer("1\n2", *rest).kind for rest in (
        ("1\n3", UNORDERED, TWO_ROWS), ("2\n1", ORDERED, TWO_ROWS), ("1,2", UNORDERED, TWO_ROWS), ("1\n2", "SELECT b FROM t", TWO_ROWS),
    )]  # fmt: skip
    assert kinds == [f"expected_output:{reason}" for reason in ("wrong", "wrong", "wrong_width", "unknown_name")]
    assert verifier.check_answer("2", "2", "def f(x): return 1 / 0", "5").correct  # an output of Python has one order: nothing runs


def test_the_expected_output_is_in_no_request_that_holds_the_answer(verifier, monkeypatch):
    from populora.sandbox.process import Zygote

    seen, real = [], Zygote.submit
    monkeypatch.setattr(Zygote, "submit", lambda self, request: (seen.append(request), real(self, request))[1])
    verifier.check_input(ADD, "70", "7391")
    verifier.check_solution(ADD, [("70", "7391")])
    verifier.check_answer("70", "7391")
    assert len(seen) == 8 and not any(b"7391" in request and b"70" in request.replace(b"7391", b"") for request in seen)
    assert sum(b"7391" in request for request in seen) == 3
