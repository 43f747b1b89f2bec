"""The text forms of databases and results: round trips, canonical texts, refusals. SQLite is the oracle of conversions."""

import sqlite3
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from populora.domains.sql import runner
from populora.sandbox.runner import Multiset, Refused

INTEGERS = st.integers(-(2**63), 2**63 - 1)
REALS = st.floats(allow_nan=False, allow_infinity=False).map(lambda value: value + 0.0)
TEXTS = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=8)
VALUES = st.none() | INTEGERS | REALS | TEXTS
TEXT_FORMS: list[Any] = [(runner.parse_inputs, runner.write_inputs), (runner.parse_output, runner.write_output)]
NAMES = st.from_regex(r"[a-z_][a-zA-Z0-9_]{0,9}", fullmatch=True).filter(lambda name: name.lower() not in ("rowid", "oid", "_rowid_"))


@st.composite
def databases(draw):
    tables = []
    for name in draw(st.lists(NAMES, min_size=1, max_size=3, unique_by=str.lower)):
        columns = tuple((column, "") for column in draw(st.lists(NAMES, min_size=1, max_size=3, unique_by=str.lower)))
        tables.append((name, columns, draw(st.lists(st.tuples(*[VALUES] * len(columns)), max_size=4))))
    return tables


def reason(function, *arguments):
    with pytest.raises(Refused) as refusal:
        function(*arguments)
    return str(refusal.value)


@given(databases())
def test_a_database_is_read_back_as_it_was_written(database):
    assert runner.parse_inputs(runner.write_inputs(database)) == database


@given(st.integers(1, 3).flatmap(lambda width: st.lists(st.tuples(*[VALUES] * width), max_size=5)))
def test_a_result_is_read_back_with_reals_of_fifteen_digits(rows):
    expected = [tuple(float(f"{value:.15g}") if isinstance(value, float) else value for value in row) for row in rows]
    assert runner.parse_output(runner.write_output(rows)) == expected


@given(st.lists(st.tuples(VALUES, VALUES), max_size=6), st.randoms(use_true_random=False))
def test_the_text_of_a_multiset_does_not_depend_on_its_order(rows, random):
    shuffled = random.sample(rows, len(rows))
    assert runner.write_output(Multiset(shuffled)) == runner.write_output(Multiset(rows))
    assert sorted(runner.write_output(rows).splitlines()) == sorted(runner.write_output(Multiset(rows)).splitlines())


def test_layout_and_spelling_of_a_database_are_made_canonical():
    text = "\n  t ( a integer , b Text,c real, d )\r\n\n 1 ,'x''y' , 1.50, -0.0\n NULL,null,2e1, +7 \n u(a)\n"
    assert runner.write_inputs(runner.parse_inputs(text)) == "t(a INTEGER,b TEXT,c REAL,d)\n1,'x''y',1.5,0.0\nNULL,NULL,20.0,7\nu(a)"


def test_the_rows_of_a_multiset_are_sorted_and_those_of_a_sequence_are_not():
    rows = [("b", 1), (2.5, 1), (None, 1), (2, 1), ("B", 1), (10, 1)]
    assert runner.write_output(rows).split("\n")[0] == "'b',1"
    assert runner.write_output(Multiset(rows)).split("\n") == ["NULL,1", "2,1", "2.5,1", "10,1", "'B',1", "'b',1"]


def test_a_result_without_rows_has_a_text_of_its_own():
    assert runner.write_output([]) == runner.write_output(Multiset()) == "no rows"
    assert runner.parse_output(" no rows\n") == [] and runner.parse_output("'no rows'") == [("no rows",)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "malformed_table"), ("1\n1,2", "malformed_table"), ("1,", "malformed_table"), ("a", "malformed_table"),
        ("t(a)\n1", "malformed_table"),
        ("[(1,)]", "malformed_table"), ("1 2", "malformed_table"), ("no rows\n1", "malformed_table"), ("'x", "malformed_table"),
        ("9223372036854775808", "value_coerced"), ("9" * 5000, "value_coerced"), ("x'00'", "unsupported_value"),
        ("1e999", "unsupported_value"),
        ("'\t'", "unsupported_value"), ("'\u2028'", "unsupported_value"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_result_is_refused_by_name(text, expected):
    assert reason(runner.parse_output, text) == expected


def test_the_bounds_of_a_database_are_the_documented_ones():
    columns = [f"c{number}" for number in range(31)]
    runner.parse_inputs(f"t({','.join(columns[:30])})")
    runner.parse_inputs("t(a)\n" + "1\n" * 1000)
    runner.parse_inputs("\n".join(f"t{number}(a)" for number in range(20)))
    assert reason(runner.parse_inputs, f"t({','.join(columns)})") == "malformed_database"
    assert reason(runner.parse_inputs, "t(a)\n" + "1\n" * 1001) == "malformed_database"
    assert reason(runner.parse_inputs, "\n".join(f"t{number}(a)" for number in range(21))) == "malformed_database"


def stored(value, kind):
    with sqlite3.connect(":memory:") as connection:
        connection.execute(f"CREATE TABLE t(a {kind})")
        connection.execute("INSERT INTO t VALUES (?)", (value,))
        return connection.execute("SELECT a FROM t").fetchone()[0]


@given(
    st.sampled_from(["", "INTEGER", "REAL", "TEXT"]),
    INTEGERS
    | REALS
    | st.integers(-9, 9).map(float)
    | st.text("0123456789+-.eE x", max_size=7)
    | st.sampled_from([2.0**62, -(2.0**63), 2.0**63, 1e20]),
)
def test_a_value_is_refused_exactly_where_sqlite_would_store_another(kind, value):
    database = [("t", (("a", kind),), [(value,)])]
    kept = stored(value, kind)
    if type(kept) is type(value) and kept == value:
        assert runner.parse_inputs(runner.write_inputs(database)) == database
    else:
        assert reason(runner.parse_inputs, runner.write_inputs(database)) == "value_coerced"


@given(st.text("t(ab)1,'x \n;NULe.-é\x00", max_size=40))
def test_any_text_is_read_or_refused_by_name(text):
    for read, write in TEXT_FORMS:
        try:
            value = read(text)
        except Refused as refusal:
            verdict = str(refusal)
        else:
            verdict = "none" if read(write(value)) == value else "another value"
        assert verdict in ("none", "malformed_database", "malformed_table", "value_coerced", "unsupported_value")
