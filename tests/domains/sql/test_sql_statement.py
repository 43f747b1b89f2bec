"""Statements: measures by hand, the normal form, names in double quotes, and each reason once."""

import pytest
from tests.domains.sql.test_sql_corpus import outcome

from populora.domains.sql import MEASURES, REASONS, runner
from populora.sandbox.runner import Refused

BY_HAND = {  # statement: joins, nesting, clauses, columns
    "SELECT 1": (0, 0, 0, 0),
    "SELECT a FROM t": (0, 0, 0, 2),
    "SELECT * FROM t": (0, 0, 0, 2),
    "SELECT count(*) FROM t": (0, 0, 0, 1),
    "SELECT t.a, A FROM t AS x, t": (1, 0, 0, 2),
    "SELECT a FROM t WHERE a > 1 AND b < 2 OR c = 3": (0, 0, 3, 4),
    "SELECT DISTINCT a FROM t ORDER BY a LIMIT 3": (0, 0, 3, 2),
    "SELECT a, count(DISTINCT b) FROM t GROUP BY a HAVING count(*) > 1": (0, 0, 3, 3),
    "SELECT x.a FROM t x JOIN u y ON x.a = y.a LEFT JOIN v USING (a)": (2, 0, 0, 4),
    "SELECT a FROM t UNION SELECT b FROM u UNION ALL SELECT c FROM v ORDER BY 1": (0, 0, 3, 6),
    "SELECT a FROM t WHERE a IN (SELECT b FROM u WHERE b > (SELECT max(c) FROM v))": (0, 2, 2, 6),
    "SELECT a FROM (SELECT a FROM (SELECT a FROM t))": (0, 2, 0, 2),
    "WITH s AS (SELECT a FROM t WHERE a > 1) SELECT a FROM s": (0, 1, 1, 2),
    "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT i FROM n": (0, 1, 2, 1),
    "SELECT a, sum(b) OVER (PARTITION BY c ORDER BY d) FROM t": (0, 0, 1, 5),
    "SELECT CASE WHEN a > 1 AND b > 1 THEN 'x' ELSE 'y' END FROM t": (0, 0, 2, 3),
    "SELECT sum(a) FILTER (WHERE b > 1) FROM t": (0, 0, 1, 3),
    "SELECT a FROM t UNION SELECT 1 ORDER BY (SELECT max(b) FROM u)": (0, 1, 2, 4),
    "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a)": (0, 1, 2, 3),
}


@pytest.mark.parametrize("statement", BY_HAND)
def test_measures_are_those_counted_by_hand(statement):
    assert runner.measure(statement)[0] == BY_HAND[statement]


def test_short_queries_use_a_good_part_of_the_ranges():
    for place, (_, low, high, _) in enumerate(MEASURES):
        values = {min(max(measures[place], low), high) for measures in BY_HAND.values()}
        assert len(values) >= 3, MEASURES[place]


@pytest.mark.parametrize(
    "text",
    [
        "select A,b from T where a>=1 and b='X';",
        "SELECT\n  a , b\nFROM t -- the table\nWHERE a >= 1 /* or not */ AND b = 'X'",
        "Select\ta,b From/**/t wHere a>=1 aNd b='X' ; ",
    ],
)
def test_the_normal_form_has_no_layout_comments_and_case(text):
    assert runner.measure(text)[1] == "select a , b from t where a >= 1 and b = 'X'"


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("SELECT 'x'", "SELECT 'X'"), ("SELECT a FROM t", "SELECT b FROM t"), ("SELECT 1 - 1", "SELECT 1 --1"), ("SELECT 1.0", "SELECT 1"),
        ("SELECT 'a b'", "SELECT 'a  b'"), ("SELECT \"a\" FROM t", "SELECT a FROM t"),
    ],
)  # fmt: skip
def test_other_programs_have_other_normal_forms(left, right):
    assert runner.measure(left)[1] != runner.measure(right)[1]


ONCE = {
    "malformed_database": ("SELECT 1", "1,2"), "value_coerced": ("SELECT 1", "t(a REAL)\n1"), "not_one_select": ("DELETE FROM t", "t(a)"),
    "unparsable_statement": ("SELECT FROM WHERE", "t(a)"), "forbidden_construct": ("SELECT random()", "t(a)"),
    "unknown_name": ("SELECT b FROM t", "t(a)"), "statement_error": ("SELECT sum(sum(a)) FROM t", "t(a)"),
    "too_many_steps": ("WITH n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT max(i) FROM n", "t(a)"),
    "too_many_rows": ("WITH n(i) AS (SELECT 1 UNION ALL SELECT i FROM n LIMIT 1500) SELECT i FROM n", "t(a)"),
    "unsupported_value": ("SELECT x'00'", "t(a)"), "value_too_long": ("SELECT 1", f"t(a)\n'{'x' * 1001}'"),
}  # fmt: skip


@pytest.mark.parametrize("expected", ONCE)
def test_each_reason_of_a_run_occurs(expected):
    assert outcome(*ONCE[expected]) == ("error", expected, "")
    assert set(REASONS) - set(ONCE) == {"malformed_table"}  # of `parse_output`


def test_what_cannot_be_loaded_cannot_be_measured():
    for statement in ("DELETE FROM t", "SELECT (", "SELECT 1; SELECT 2"):
        with pytest.raises(Refused):
            runner.measure(statement)


@pytest.mark.parametrize(
    "statement",
    [
        'SELECT "x" FROM t AS y WHERE EXISTS (SELECT 1 AS x)', 'SELECT "x" FROM t, (SELECT 1 AS z) AS x',
        'WITH s AS (SELECT 1 AS x) SELECT "x" FROM t', 'SELECT a FROM t WHERE "y" = a UNION SELECT 1 AS y', 'SELECT a, "b c" FROM t',
        'SELECT "a`b" FROM t', 'SELECT "a""b" FROM t', 'SELECT count("x") FROM t GROUP BY (SELECT max(x) FROM (SELECT 1 AS x))',
    ],
)  # fmt: skip
def test_a_name_in_double_quotes_that_its_select_does_not_have_is_unknown(statement):
    assert outcome(statement, "t(a)\n1") == ("error", "unknown_name", "")


@pytest.mark.parametrize(
    "statement",
    [
        'SELECT "A" FROM "t" AS "y" WHERE "y"."a" = 1', 'SELECT "x" FROM (SELECT a AS x FROM t)',
        'WITH s("x") AS (SELECT 1) SELECT "x" FROM s', 'SELECT a AS "b c" FROM t GROUP BY "b c"',
        'SELECT a AS "b`c" FROM t ORDER BY "b`c"',
        'SELECT a AS "b""c" FROM t ORDER BY `b"c`',
        'SELECT (SELECT "a" + 0) FROM t', "SELECT 1 FROM t WHERE '\"z\"' <> a",
    ],
)  # fmt: skip
def test_a_name_in_double_quotes_that_its_select_has_is_read(statement):
    assert outcome(statement, "t(a)\n1") == ("ok", "", "1")
