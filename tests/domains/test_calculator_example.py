"""The example of docs/domains.md: small, installable, exact, and bounded."""

import contextlib
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domains.conftest import EXAMPLE

from populora.domains.conformance import check
from populora.domains.registry import domain_names, load_domain, packages_of
from populora.sandbox.protocol import Limits
from populora.sandbox.runner import Refused
from populora.tasks.checks import Verifier

PAGE = EXAMPLE.parents[1] / "docs" / "domains.md"


@pytest.fixture
def runner(calculator):
    from calculator_domain import runner

    return runner


def test_the_whole_package_has_at_most_250_lines():
    files = [path for path in EXAMPLE.rglob("*") if path.suffix in (".py", ".toml", ".md")]
    assert len(files) == 6 and sum(path.read_text().count("\n") for path in files) <= 250


@pytest.mark.usefixtures("calculator")
def test_its_name_and_package_are_listed_and_it_conforms():
    assert domain_names()[-1] == "calculator" and packages_of("calculator") == ["populora-calculator 0.1.0"]
    check(load_domain("calculator"))


def test_the_verifier_judges_all_three_tasks(calculator):
    with Verifier(Limits(), domain="calculator", allow_weak=True) as verifier:
        verdict = verifier.run_program("x * (y + 2) - abs(z)", " z=-4,x = 3 ,y = -1")
        assert verdict.values[0].literal == "-1"
        assert verifier.check_input("x % 5", answer="x = 12", output="2").correct
        assert verifier.check_input("x % 5", answer="x = 13", output="2").kind == "wrong"
        assert verifier.check_answer(answer=" +7", output="7").correct
        assert verifier.check_solution(answer="x + x", pairs=[("x = 1", "2"), ("x = -4", "-8")]).correct
        assert verifier.check_solution(answer="y", pairs=[("x = 1", "2")]).kind == "unknown_variable"


def test_the_verifier_answers_as_the_page_shows(calculator_folder):
    lines = [
        line for line in PAGE.read_text("utf-8").splitlines() if line.startswith('{"id": ') and ('"role"' in line or '"verdict"' in line)
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(calculator_folder), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "populora.cli.main", "verify", "--allow-weak", "--domain", "calculator"]
    done = subprocess.run(command, input="\n".join(lines[::2]), env=environment, capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [json.loads(line) for line in lines[1::2]] and len(lines) == 6


NAMES = ("x", "y", "long_name2")
EXPRESSIONS = st.recursive(
    st.sampled_from(NAMES) | st.integers(0, 99).map(str),
    lambda parts: st.one_of(
        st.tuples(parts, st.sampled_from(["+", "-", "*", "//", "%", "**"]), parts).map(lambda part: "({} {} {})".format(*part)),
        parts.map("-{}".format), parts.map("abs({})".format), st.tuples(parts, parts).map(lambda pair: "min({}, {})".format(*pair)),
    ),
    max_leaves=8,
)  # fmt: skip


def test_values_are_pythons_own_where_numbers_are_small(runner):
    @given(EXPRESSIONS, st.tuples(*[st.integers(-20, 20)] * 3))
    def agree(expression, numbers):
        bindings = dict(zip(NAMES, numbers, strict=True))
        with contextlib.suppress(Refused):
            value = runner.load(expression, ())(runner.write_inputs(bindings), 0)
            compared.append(value == eval(expression, {}, bindings))

    compared: list[bool] = []
    agree()
    assert all(compared) and len(compared) > 50


def test_texts_are_canonical(runner):
    @given(st.dictionaries(st.sampled_from(["a", "b", "c_1"]), st.integers(-(10**15) + 1, 10**15 - 1)), st.integers(-(10**15), 10**15))
    def round_trip(bindings, number):
        text = " ,".join(f"{name}={value}" for name, value in sorted(bindings.items(), reverse=True))
        assert runner.parse_inputs(text) == bindings
        assert runner.write_inputs(runner.parse_inputs(text)) == runner.write_inputs(bindings)
        assert runner.parse_output(runner.write_output(number)) == number

    round_trip()


@pytest.mark.parametrize(
    ("program", "inputs", "reason"),
    [
        ("x +", "x = 1", "not_an_expression"),
        ("x / 2", "x = 1", "not_an_expression"),
        ("x if x else 1", "x = 1", "not_an_expression"),
        ("x.real", "x = 1", "not_an_expression"),
        ("True + 1", "x = 1", "not_an_expression"),
        ("1.5", "x = 1", "not_an_expression"),
        ("'a' * 9", "x = 1", "not_an_expression"),
        ("__import__('os')", "x = 1", "not_an_expression"),
        ("abs(*x)", "x = 1", "not_an_expression"),
        ("abs(x, x)", "x = 1", "not_an_expression"),
        ("min(x, default=1)", "x = 1", "not_an_expression"),
        ("(x := 3)", "x = 1", "not_an_expression"),
        ("[x for x in x]", "x = 1", "not_an_expression"),
        ("x" + " + x" * 60, "x = 1", "expression_too_long"),
        ("-" * 100 + "x", "x = 1", "expression_too_deep"),
        ("(" * 90 + "x", "x = 1", "not_an_expression"),
        ("y", "x = 1", "unknown_variable"),
        ("abs", "x = 1", "unknown_variable"),
        ("1 // (x - 1)", "x = 1", "division_by_zero"),
        ("1 % 0", "x = 1", "division_by_zero"),
        ("2 ** -x", "x = 1", "exponent_out_of_range"),
        ("9 ** 9 ** 9", "x = 1", "exponent_out_of_range"),
        ("x ** 50", "x = 999999999999999", "number_too_large"),
        ("9" * 30, "x = 1", "number_too_large"),
        ("x", "x", "not_bindings"),
        ("x", "x = 1,", "not_bindings"),
        ("x", "x = 1, x = 1", "not_bindings"),
        ("x", "X = 1", "not_bindings"),
        ("x", "x = 1.0", "not_bindings"),
        ("x", "x = 1_0", "not_bindings"),
        ("x", "x = \u0663", "not_bindings"),
    ],
)
def test_whatever_is_no_small_computation_has_its_reason(runner, program, inputs, reason):
    with pytest.raises(Refused, match=f"^{reason}$"):
        runner.load(program, ())(inputs, 0)


PARTS = [*"xy=,+-*/%()[]{}:.'\\#\n\0é 019", "**", "//", "abs(", "min(", "lambda ", "True", "x = 3"]


def test_any_text_is_read_or_refused_for_a_declared_reason(calculator, runner):
    identity = runner.load("x", ())
    readers = (lambda text: runner.load(text, ())("x = 3", 0), lambda text: identity(text, 0), runner.measure, runner.parse_output)

    @given(st.lists(st.sampled_from(PARTS)).map("".join) | st.text(max_size=300))
    def read(text):
        for reader in readers:
            try:
                reader(text)
            except Refused as refusal:
                reasons.add(str(refusal))

    reasons: set[str] = set()
    read()
    assert {"not_an_expression", "not_bindings", "not_an_integer"} < reasons <= set(calculator.runner.reasons)


@pytest.mark.parametrize("text", ["", "1.0", "0x10", "1 2", "1" * 17, "--1"])
def test_an_output_is_an_integer(runner, text):
    with pytest.raises(Refused, match="not_an_integer"):
        runner.parse_output(text)


@pytest.mark.parametrize(
    ("program", "measures"),
    [("x", (0, 0, 1, 0)), ("7", (0, 0, 0, 1)), ("x * (y + 2) - abs(z)", (3, 4, 3, 1)), ("-min(x, -x) ** 2", (4, 4, 1, 1))],
)
def test_measures_are_those_counted_by_hand(runner, program, measures):
    assert runner.measure(program)[0] == measures


def test_layout_does_not_make_another_program(runner):
    assert runner.measure(" ((x)+0x10) # note")[1] == runner.measure("x + 16")[1] != runner.measure("16 + x")[1]
