"""Values cross the border as tagged trees: literal and canonical texts agree with Python, forged trees are refused."""

import ast
import itertools
from collections import Counter, OrderedDict, defaultdict, namedtuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora.sandbox.protocol import Job, Limits, decode_reply
from populora.sandbox.python_runner import _arguments, _evaluate, _literal
from populora.sandbox.runner import Refused
from populora.sandbox.trees import tree_of
from populora.sandbox.values import value_from_tree

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text(st.characters(exclude_categories=[]), max_size=8)
    | st.binary(max_size=8)
)
hashables = st.recursive(scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=6)
values = st.recursive(
    hashables | st.sets(hashables, max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner) | st.dictionaries(hashables, inner, max_size=3),
    max_leaves=12,
)


def crossed(value: object):
    return value_from_tree(tree_of(value, [1e9]))


def same_types(left: object, right: object) -> bool:
    return crossed(left).canonical == crossed(right).canonical


@given(values)
def test_the_literal_of_a_value_evaluates_to_that_value(value):
    again = _evaluate(_literal(crossed(value).literal))
    assert again == value
    assert same_types(again, value)


@given(values, values)
def test_comparable_texts_are_equal_exactly_when_python_says_so(left, right):
    assert (crossed(left).comparable == crossed(right).comparable) == (left == right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (True, 1),
        (1, 1.0),
        (-0.0, 0),
        (2**60, float(2**60)),
        ({1}, frozenset([True])),
        ({1: "a", 2: "b"}, {2.0: "b", True: "a"}),
        ([1e20], [10**20]),
        (complex(2, 0), 2.0),
    ],
)
def test_equal_values_of_different_types_differ_only_under_strict_equality(left, right):
    assert left == right
    assert crossed(left).comparable == crossed(right).comparable
    if repr(left) != repr(right):
        assert crossed(left).canonical != crossed(right).canonical or isinstance(left, dict)


def test_different_kinds_of_value_never_compare_equal():
    kinds = [
        None,
        0,
        1,
        0.5,
        "",
        "0",
        "None",
        b"",
        b"0",
        1j,
        1 + 1j,
        [],
        (),
        set(),
        {},
        [0],
        (0,),
        {0},
        {0: 0},
        2**53,
        2**53 + 1,
        "i0",
        float("inf"),
    ]
    for left, right in itertools.combinations(kinds, 2):
        assert crossed(left).comparable != crossed(right).comparable, (left, right)


def test_sets_are_written_in_one_order_whatever_the_hash_seed():
    assert crossed({10, 9, 100}).literal == "{9, 10, 100}"
    assert crossed(frozenset()).literal == "frozenset()"
    assert crossed(float("-inf")).literal == "-1e999"


def test_arguments_are_written_without_their_parentheses():
    tree = tree_of(_evaluate(_arguments("[1, 2], 'a' # note")), [1e9])
    assert value_from_tree(tree, as_arguments=True).literal == "[1, 2], 'a'"
    assert value_from_tree(["t"], as_arguments=True).literal == ""


@pytest.mark.parametrize(
    "text",
    [
        "1 + 1",
        "f(1)",
        "x",
        "[x for x in []]",
        "{**{}}",
        "...",
        "1j + 1",
        "1j + 1j",
        "'a' + 1j",
        "f'{1}'",
        "(",
        "",
        "not 1",
        "--1",
        "{[]}",
        "-True",
        "set([1])",
    ],
)
def test_what_is_no_literal_is_refused(text):
    with pytest.raises(Refused, match="not_a_literal"):
        _evaluate(_literal(text))


@pytest.mark.parametrize("text", ["1), (2", "1)(2", "1).g(2", "x=1", "*[1]", "1) or (26", "1\n)\nf(2", "0) if 1 else (1", "**{}"])
def test_arguments_cannot_leave_their_parentheses(text):
    with pytest.raises(Refused, match="not_a_literal"):
        _evaluate(_arguments(text))


@given(st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(scalars, inner, max_size=3), max_leaves=8))
def test_literals_are_read_as_the_standard_library_reads_them(value):
    text = repr(value).replace("inf", "1e999")
    if isinstance(value, str | bytes) or not any(isinstance(part, ast.Name) for part in ast.walk(ast.parse(text, mode="eval"))):
        assert _evaluate(_literal(text)) == ast.literal_eval(text)


FORGED = [
    5, 1.5, [], ["q"], ["i", 5], ["i", "05"], ["i", "-0"], ["i", "1" * 4302], ["i", "٣"], ["f", "nan"], ["f", "1"], ["f", "1e3"],
    ["f", "x"], ["c", "0.0"], ["c", "0", "1.0"], ["c", "nan", "1.0"],
    ["y", "0"], ["s", ["i", "1"], True], ["s", ["l"]], ["d", "a"], ["d", ["l"], None], ["d", "a", 1], {"i": 1}, ["s", ["t", ["l"]]],
]  # fmt: skip


@pytest.mark.parametrize("tree", FORGED)
def test_a_tree_that_no_value_has_is_refused(tree):
    with pytest.raises(ValueError, match=r"not a tagged|not the shortest|equal or unhashable|hexadecimal|could not convert"):
        value_from_tree(tree)


@pytest.mark.parametrize(
    "body",
    [b"[", b"[" * 50_000, b"{}", b"[]", b'[{"kind": "blocked"}]', b'[{"kind": "ok", "values": []}]',
     b'[{"kind": "ok", "values": [["f", "nan"]]}]', b'[{"kind": "error", "reason": "mine"}]',
     b'[{"kind": "ok", "measures": [1, 1, 1, 1, ""]}]'],
)  # fmt: skip
def test_a_reply_that_is_no_result_of_the_job_is_refused(body):
    job = Job("run", "def f(x): return x", ("1",))
    assert decode_reply(len(body).to_bytes(4, "big") + body, [job], Limits()) is None
    assert decode_reply((len(body) + 1).to_bytes(4, "big") + body, [job], Limits()) is None


def test_depth_is_bounded_on_both_sides():
    deep: object = []
    tree: list = ["l"]
    for _ in range(61):
        deep, tree = [deep], ["l", tree]
    with pytest.raises(Refused, match="unsupported_value"):
        tree_of(deep, [1e9])
    with pytest.raises(ValueError, match="nested"):
        value_from_tree(tree)


@pytest.mark.parametrize("number", [1e21, 10**21, 1e22, 2**100, 1e308, -(10**30), 10**30 + 1, 10**21 - 1, 10**400])
def test_large_numbers_are_equal_as_in_python(number):
    for other in (1e21, 10**21, float(10**21 - 1), 1e22, 10**22, 2.0**100, 1e308, int(1e308), -1e30, 10**30, 1e30, 10**400):
        assert (crossed(number).comparable == crossed(other).comparable) == (number == other), (number, other)
    assert len(crossed(1e308).comparable) < 10


@pytest.mark.parametrize("value", [Counter("aab"), OrderedDict(b=1, a=2), defaultdict(int, {"a": 2, "b": 1})])
def test_a_dict_of_the_standard_library_is_the_dict_that_it_equals(value):
    assert crossed(value).comparable == crossed({"a": 2, "b": 1}).comparable != crossed({"a": 2}).comparable
    assert ast.literal_eval(crossed(value).literal) == value


@pytest.mark.parametrize("value", [type("D", (dict,), {})(a=2), type("C", (Counter,), {})("aab"), namedtuple("P", "x")(1)])
def test_a_value_of_another_class_has_no_literal(value):
    with pytest.raises(Refused, match="unsupported_value"):
        crossed(value)


def test_a_shared_value_of_exponential_size_is_refused_early():
    value: object = []
    for _ in range(50):
        value = [value, value]
    with pytest.raises(Refused, match="output_limit"):
        tree_of(value, [400])
