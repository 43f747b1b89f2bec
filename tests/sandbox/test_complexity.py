"""The four metrics against the labels printed in the paper and against radon, and the fingerprint's invariances."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from radon.complexity import cc_visit
from radon.raw import analyze

from populora.sandbox.complexity import fingerprint, measure, normal_form

# The six programs of the paper's figure "Generator outputs at matched training steps" with its labels
# (AST depth, cyclomatic, LOC). The figure prints no variable counts: the fourth number follows our definition.
PRINTED = {
    "baseline step 5": (
        """\
def f(s: str) -> bool:
    n = len(s)
    for i in range(n//2):
        if s[i] != s[n-1-i]:
            return False
    return True
""",
        (9, 3, 6, 2),
    ),
    "teacher step 5": (
        """\
def f(arr: list[int]) -> list[int]:
    result = []
    index = 0
    while index < len(arr):
        result.append(str(arr[index]))
        index += 2**(len(arr) - index - 1)
    return result

print(f([1, 2, 3, 4, 5, 6, 7]))
""",
        (9, 2, 8, 2),
    ),
    "baseline step 50": (
        """\
def f(input_string: str) -> str:
    vowels = set('aeiouAEIOU')
    result = ''
    for char in input_string:
        if char not in vowels:
            result += char
    return result
""",
        (6, 3, 7, 3),
    ),
    "teacher step 50": (
        """\
def f(nums: list[int]) -> list[int]:
    sorted_nums = sorted(nums)
    result = []

    for num in sorted_nums:
        digit_sum = sum(int(digit) for digit in str(num))
        modified_num = num + digit_sum
        result.append(modified_num)

    return result
""",
        (9, 3, 8, 6),
    ),
    "baseline step 100": (
        """\
def f(number: int) -> int:
    return number * 3
""",
        (5, 1, 2, 0),
    ),
    "teacher step 100": (
        """\
def f(data: list[dict[str, int]]) -> int:
    state_sum = 0
    for entry in data:
        if 'value' in entry:
            state_sum += entry['value']
    return state_sum
""",
        (8, 3, 6, 2),
    ),
}


@pytest.mark.parametrize("name", PRINTED)
def test_labels_of_the_papers_figure_are_ours_and_radons(name):
    source, expected = PRINTED[name]
    assert measure(source) == expected
    assert (cc_visit(source)[0].complexity, analyze(source).sloc) == expected[1:3]


@pytest.mark.parametrize(
    ("body", "cyclomatic"),
    [
        ("return x", 1),
        ("if x:\n        return 1\n    elif x > 2:\n        return 2\n    else:\n        return 3", 3),
        ("return x and x > 1 or x < 3", 3),
        ("return x and x > 1 and x < 3", 3),
        ("assert x\n    while x:\n        x -= 1", 3),
        ("try:\n        x()\n    except KeyError:\n        x = 1\n    except ValueError:\n        x = 2", 3),
        ("return [a for b in x for a in b]", 3),
    ],
)
def test_cyclomatic_counts_what_radon_counts_too(body, cyclomatic):
    source = f"def f(x):\n    {body}\n"
    assert measure(source)[1] == cyclomatic
    assert cc_visit(source)[0].complexity == cyclomatic


@pytest.mark.parametrize("expression", ["1 if x else 2", "[a for a in x if a]"])
def test_conditional_expressions_and_filters_are_not_in_the_papers_list(expression):
    source = f"def f(x):\n    return {expression}\n"
    assert measure(source)[1] == cc_visit(source)[0].complexity - 1


@pytest.mark.parametrize(
    ("source", "loc"),
    [
        ("", 0),
        ("# only a comment\n\n", 0),
        ("x = 1  # trailing\n# alone\ny = 2\n", 2),
        ("x = '''a\n# not a comment\n\nb'''\n", 3),
        ("x = [\n    1,\n    # inside\n\n    2,\n]\n", 4),
        ("x = 1\r\n\r\ny = 2\r\n", 2),
    ],
)
def test_lines_of_code_are_lines_with_a_token(source, loc):
    assert measure(source)[2] == loc


@pytest.mark.parametrize(
    ("source", "variables"),
    [
        ("def f(a, *b, c=1, **d):\n    return a", 0),
        ("import os\nclass A:\n    pass\ndef g():\n    pass", 0),
        ("x = y = 1\nx += 1\nx: int = 3", 2),
        ("a, (b, *c) = t\no.field = 1\no[0] = 1", 3),
        ("for i in t:\n    for i in t:\n        pass", 1),
        ("[k for k in t]\n{m: n for m, n in t}", 3),
        ("with open(p) as handle:\n    pass", 1),
        ("try:\n    pass\nexcept OSError as error:\n    pass\nexcept ValueError:\n    pass", 1),
        ("if (n := 3) > 2:\n    pass", 1),
        ("match v:\n    case [first, *rest]:\n        pass\n    case {'k': w, **others}:\n        pass\n    case _:\n        pass", 4),
    ],
)
def test_variables_are_distinct_bound_names_without_parameters(source, variables):
    assert measure(source)[3] == variables


def test_long_operator_chain_does_not_exhaust_the_stack():
    source = "x = " + "+".join(["1"] * 2000)
    assert measure(source)[0] > 1000
    assert fingerprint(normal_form(source)) != fingerprint(normal_form(source + "+1"))


def test_fingerprint_ignores_layout_comments_and_docstrings():
    plain = "def f(x):\n    return x + 1\n"
    dressed = '"""Module."""\n# note\n\ndef f( x ):\n    "Doc."\n    return (x+1)  # sum\n'
    assert fingerprint(normal_form(plain)) == fingerprint(normal_form(dressed))
    assert len(fingerprint(normal_form(plain))) == 64


@given(
    st.lists(st.sampled_from(["x = 1", "x = '1'", "y = (x, 1)", "y = (x,), 1", "f(a=None)", "f(None)", "{**x}"]), min_size=1, max_size=4)
)
def test_fingerprints_are_equal_exactly_when_the_dumped_trees_are(lines):
    source, shuffled = "\n".join(lines), "\n".join(sorted(lines))
    same_tree = ast.dump(ast.parse(source)) == ast.dump(ast.parse(shuffled))
    assert (fingerprint(normal_form(source)) == fingerprint(normal_form(shuffled))) == same_tree


@given(st.lists(st.sampled_from(["x = 1", "# note", "", "y = x", "for i in [1]:\n    z = i", "if y:\n    pass"]), max_size=8))
def test_comments_and_blank_lines_change_no_metric(lines):
    bare = [line for line in lines if line and not line.startswith("#")]
    assert measure("\n".join(lines)) == measure("\n".join(bare))
    assert fingerprint(normal_form("\n".join(lines))) == fingerprint(normal_form("\n".join(bare)))
