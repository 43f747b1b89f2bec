"""The arithmetic of the acceptance tests on hand-made proposals."""

from dataclasses import replace

import pytest
from experiments.tiny_base.acceptance import Scored, passed, report, variety
from experiments.tiny_base.subjects import SUBJECTS

from populora.core.types import CODE_TYPES, Measures

PROGRAMS = [
    (
        "def g(m):\n    return m + 1\n\ndef f(a):\n    b = [v for v in a]\n    for v in a:\n        b.append(g(v))\n    return (b, a)",
        Measures((9, 3, 6, 2), ""),
    ),
    ("def f(s, d):\n    if s in d:\n        d['a'] = 1\n    return s", Measures((6, 2, 4, 1), "")),
    ("def f(x):\n    return x + 1", Measures((4, 1, 2, 0), "")),
]


def scored(task, lines, valid=True, rho=0.5, reward=0.5):
    styles = ((False, False, True), (True, True)) if valid else ((), ())
    rejection, program = ("", PROGRAMS[lines % 3]) if valid else ("error:syntax", None)
    return Scored(task, lines, valid, rejection, rho if valid else None, reward if valid else -1.0, *styles, program)


def rising(task, slope=0.05):
    rhos = [step / 8 for step in range(9)]
    return [scored(task, lines, rho=rhos[index % 9], reward=0.1 + slope * lines) for index in range(180) for lines in (2 + index % 8,)]


def test_a_base_whose_harder_problems_pay_passes():
    items = [item for task in CODE_TYPES for item in rising(task)]
    assert all(passed(report(items, "python"), "python").values())


def test_a_statement_is_as_long_as_its_words_numbers_strings_and_signs():
    assert SUBJECTS["sql"].size("SELECT a, 'b c' FROM t\nWHERE a >= 10") == 11
    assert SUBJECTS["python"].size("def f(x):\n\n    return x") == 2


def test_falling_rewards_fail_the_slope_alone():
    items = [item for task in CODE_TYPES for item in rising(task, slope=-0.05)]
    failed = [name for name, holds in passed(report(items, "python"), "python").items() if not holds]
    assert failed == [f"{task} reward rises with lines" for task in CODE_TYPES]


def test_invalid_long_programs_fail_the_longest_quarter_and_turn_the_slope():
    items = rising(CODE_TYPES[0]) + [scored(CODE_TYPES[0], 12, valid=False) for _ in range(8)]
    items += [item for task in CODE_TYPES[1:] for item in rising(task)]
    results = report(items, "python")
    measured = results[CODE_TYPES[0]]
    assert measured["valid"] == round(180 / 188, 4) and measured["rejections"] == {"error:syntax": 8}
    assert measured["longest_quarter_from_lines"] == 8 and measured["valid_longest_quarter"] == round(44 / 52, 4)
    checks = passed(results, "python")
    assert checks["code_i valid >= 0.95"] and not checks["code_i valid, longest quarter >= 0.90"]


def test_a_missing_rate_fails():
    items = [scored(task, 2 + index % 8, rho=0.5, reward=0.1 * index) for task in CODE_TYPES for index in range(40)]
    assert not passed(report(items, "python"), "python")["code_o problems at every rate"]


def failed_with(direct, reasoned):
    items = [replace(item, direct=direct, reasoned=reasoned) for task in CODE_TYPES for item in rising(task)]
    return {
        name.removeprefix("code_o ")
        for name, holds in passed(report(items, "python"), "python").items()
        if not holds and name.startswith("code_o")
    }


def test_reasoning_must_be_a_habit_of_the_few_and_pay():
    assert failed_with((True, False), (True, True, False)) == {"reasoning is a minority habit"}
    assert failed_with((True, False, False), (True, False)) == set()
    assert failed_with((True, False, True), (True, False)) == {"reasoning is more accurate"}
    assert failed_with((True, False), ()) == {"reasoning is a minority habit", "reasoning is more accurate"}


USES, GROWS = "programs use every construct", "programs grow and shrink on every measure"


@pytest.mark.parametrize(("kept", "failed"), [(PROGRAMS, set()), (PROGRAMS[1:], {USES}), (PROGRAMS[:1] * 50, {USES, GROWS})])
def test_programs_must_use_every_construct_and_differ(kept, failed):
    results = report([item for task in CODE_TYPES for item in rising(task)], "python")
    checks = passed({**results, "programs": variety(kept, "python")}, "python")
    assert {name for name in (USES, GROWS) if not checks[name]} == failed
