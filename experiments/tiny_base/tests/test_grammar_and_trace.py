"""The generator's programs are real Python, and their traces tell what really happened."""

import ast
import builtins
import re

import pytest
from experiments.tiny_base.describe import LEVELS, describe
from experiments.tiny_base.grammar import random_arguments, random_program
from experiments.tiny_base.samples import draw_sample
from experiments.tiny_base.trace import Program, Rejected, in_range
from hypothesis import given, settings
from hypothesis import strategies as st

from populora.core.rng import stream


@given(seed=st.integers(0, 2**32), budget=st.integers(1, 8))
@settings(max_examples=150, deadline=None)
def test_every_program_is_python_in_canonical_style(seed, budget):
    source = random_program(stream(seed, "test"), budget)
    canonical = {line.strip() for line in ast.unparse(ast.parse(source)).splitlines()}
    # an `else` that holds one `if` is the only thing that ast.unparse would write differently (as `elif`)
    assert {line.strip() for line in source.splitlines() if not line.strip().startswith(("else:", "if ", "elif "))} <= canonical


def test_all_kinds_of_python_occur():
    trees = [ast.parse(random_program(stream(0, "kinds", index), 1 + index % 8)) for index in range(600)]
    kinds = {type(node) for tree in trees for node in ast.walk(tree)}
    assert {ast.If, ast.For, ast.While, ast.ListComp, ast.Dict, ast.Tuple, ast.Subscript, ast.BoolOp, ast.List} <= kinds
    assert any(len(tree.body) == 2 for tree in trees), "no helper function"
    assert any(isinstance(node, ast.Constant) and isinstance(node.value, str) for tree in trees for node in ast.walk(tree))


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_traced_values_equal_plain_execution(seed):
    sample = draw_sample(stream(seed, "trace"), 1 + seed % 6)
    namespace: dict = {}
    exec(sample.source, {name: getattr(builtins, name) for name in dir(builtins)}, namespace)  # our own program
    helpers = {**namespace}
    for arguments, run in zip(sample.arguments, sample.runs, strict=True):
        scope = dict(helpers)
        exec(sample.source, scope)
        copied = [type(value)(value) if isinstance(value, (list, dict)) else value for value in arguments]
        assert scope["f"](*copied) == run.value
        line, effect = run.trace[-1]
        assert line.startswith("return ") and effect.rpartition("; ")[2] == repr(run.value)


def written(source: str, *arguments: object) -> list[str]:
    return [f"{line}  # {effect}" for line, effect in Program(source).run(arguments).trace]


def test_effects_of_each_kind_of_line():
    source = (
        "def f(a, x):\n    r = 0\n    for v in a:\n        if v > x:\n            r += v\n    a.append(r)\n    x, r = (r, x)\n    return x"
    )
    assert written(source, [1, 5], 3) == [
        "r = 0  # r = 0",
        "for v in a:  # v = 1",
        "if v > x:  # 1 > 3; False",
        "for v in a:  # v = 5",
        "if v > x:  # 5 > 3; True",
        "r += v  # 0 + 5; r = 5",
        "for v in a:  # end",
        "a.append(r)  # a = [1, 5, 5]",
        "x, r = (r, x)  # x = 5, r = 3",
        "return x  # 5",
    ]


def test_integers_are_put_in_outside_comprehensions_and_helpers_name_their_argument():
    source = "def g(m):\n    return m - 9\n\ndef f(a, v):\n    a = [v * 2 for v in a]\n    v = g(v) + len(a)\n    return (v, a)"
    assert written(source, [1, 2], 4) == [
        "a = [v * 2 for v in a]  # a = [2, 4]",
        "def g(m):  # m = 4",
        "return m - 9  # 4 - 9; -5",
        "v = g(v) + len(a)  # g(4) + len(a); v = -3",
        "return (v, a)  # (-3, [2, 4])",
    ]


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_what_is_put_in_evaluates_to_the_effect(seed):
    """Where only integers occur in an expression, Python itself agrees with the result that the line claims."""
    sample = draw_sample(stream(seed, "put-in"), 1 + seed % 6)
    for line, effect in sample.runs[0].trace:
        expression, semicolon, result = effect.rpartition("; ")
        sets_one_integer = re.match(r"[xyznrm] \S*= |(if|elif|while|return) ", line)
        if semicolon and sets_one_integer and not set(expression) & set("abdgqstu'("):
            assert repr(eval(expression, {})) == result.rpartition(" = ")[2]  # our own program


def test_arguments_are_left_untouched():
    values = ([1, 2],)
    Program("def f(a):\n    a.append(3)\n    return a").run(values)
    assert values == ([1, 2],)


@pytest.mark.parametrize(
    "source",
    [
        "def f(x):\n    while x > 0:\n        x += 1\n    return x",
        "def f(x):\n    s = 'ab'\n    while x > 0:\n        s = s * 2\n    return s",
        "def f(x):\n    return x // 0",
        "def f(x):\n    return y",
        "def f(x):\n    return x * 1000",
        "def f(x):\n    return open('/etc/passwd')",
    ],
)
def test_programs_that_fail_or_leave_the_ranges_are_rejected(source):
    with pytest.raises(Rejected):
        Program(source).run((5,))


def test_ranges_reach_into_containers():
    assert in_range({"a": [1, (2, "xy")]})
    assert not in_range([[100]])
    assert not in_range("a" * 10)
    assert not in_range(1.5)


@given(seed=st.integers(0, 2**32), level=st.sampled_from(LEVELS))
@settings(max_examples=100, deadline=None)
def test_a_message_describes_without_giving_the_program_away(seed, level):
    source = random_program(stream(seed, "message"), 4)
    message = describe(source, level)
    assert message and "```" not in message and "\n" not in message
    assert not any(line.strip() in message for line in source.splitlines() if len(line.strip()) > 8)


def test_arguments_fit_the_signature():
    rng = stream(1, "arguments")
    for index in range(200):
        source = random_program(stream(1, "signature", index), 2)
        entry = ast.parse(source).body[-1]
        assert len(random_arguments(rng, source)) == len(entry.args.args)
