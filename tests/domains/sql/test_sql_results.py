"""Results of statements: those of an independent SQLite connection, and the bounds of the guard."""

import sqlite3
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domains.sql.corpus_case import CASES, ROWS
from tests.domains.sql.test_sql_corpus import outcome

from populora.domains.sql import runner
from populora.sandbox.runner import Multiset, Refused

VALUES = st.none() | st.integers(-3, 3) | st.sampled_from([0.5, -1.25, 2.0, "x", "", "X y", "it's", "1"])
BLANKS = st.sampled_from([" ", "  ", "\n", "\t", " /* ' ; */ ", ' -- " ;\n', "/**/"])
OPERANDS = st.sampled_from(["a", "b", "1", "-2", "NULL", "'x'", "0.5", "length ( b )", "coalesce ( a , 0 )", "abs ( a )", "a || b"])
OPERATORS = st.sampled_from(["+", "-", "*", "/", "%", "||", "=", "<>", "<", ">=", "IS", "IS NOT", "AND", "OR", "LIKE"])
EXPRESSIONS = st.sampled_from(
    ["{0} {1} {2}", "( {0} {1} {2} )", "NOT {0}", "CASE WHEN {0} THEN {2} ELSE {0} END", "- {0}", "( {0} IN ( {2} , 1 ) )"]
)
STATEMENTS = st.sampled_from([
    "SELECT {0} , {1} FROM t", "SELECT DISTINCT {0} FROM t WHERE {1}", "SELECT {0} FROM t WHERE {1} AND {2}",
    "SELECT count ( * ) , sum ( {0} ) , min ( {1} ) , max ( {2} ) FROM t",
    "SELECT {0} , count ( {1} ) FROM t GROUP BY {0} HAVING {2}",
    "SELECT {0} FROM t UNION SELECT {1} FROM u", "SELECT {0} FROM t EXCEPT SELECT {1} FROM t",
    "SELECT x.a , y.b FROM t AS x JOIN u AS y ON x.a = y.a", "SELECT x.b FROM t x LEFT JOIN u y USING ( a ) WHERE y.a IS NULL",
    "SELECT {0} FROM t WHERE a IN ( SELECT {1} FROM u )", "WITH s AS ( SELECT {0} AS a , {1} AS b FROM t ) SELECT {2} FROM s",
    "SELECT {0} FROM t WHERE EXISTS ( SELECT 1 FROM u WHERE u.a > t.a )",
    "SELECT t.a , u.a FROM t , u WHERE t.a < u.a OR t.b = u.b",
    "SELECT {0} FROM t ORDER BY a , b", "SELECT a , b FROM u ORDER BY {0} DESC , a , b",
    "SELECT a , rank ( ) OVER ( ORDER BY a ) FROM t",
])  # fmt: skip
WORDS = """select from t a b where ( ) , '' ' " [ ] ` ; -- /* */ 1 .5 1e9 = || x'0a' with as order by limit ? é * over""".split(" ")


@st.composite
def expressions(draw, depth=2):
    if depth == 0 or draw(st.booleans()):
        return draw(OPERANDS)
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    return draw(EXPRESSIONS).format(left, draw(OPERATORS), right)


@st.composite
def statements(draw):
    return draw(STATEMENTS).format(*(draw(expressions()) for _ in range(3)))


@st.composite
def databases(draw):
    rows = [draw(st.lists(st.tuples(VALUES, VALUES), max_size=5)) for _ in range(2)]
    return runner.write_inputs([(name, (("a", ""), ("b", "")), part) for name, part in zip("tu", rows, strict=True)])


def expected_rows(statement, database):
    """The rows by a connection of the test's own, or None for an error. The lines of a database are SQL literals."""
    connection = sqlite3.connect(":memory:")
    table = ""
    for line in database.split("\n"):
        if line.endswith(")") and line[0] in "tu":
            table = line[0]
            connection.execute(f"CREATE TABLE {line}")
        else:
            connection.execute(f"INSERT INTO {table} VALUES ({line})")  # noqa: S608 - our own
    try:
        rows = connection.execute(statement).fetchall()
    except sqlite3.Error:
        return None
    return [tuple(float(f"{value:.15g}") if isinstance(value, float) else value for value in row) for row in rows]


@given(statements(), databases(), st.data())
def test_rows_are_those_of_an_independent_connection_whatever_the_layout(statement, database, data):
    spread = "".join(word + data.draw(BLANKS) for word in statement.split(" "))
    rows = expected_rows(spread, database)
    if rows is None:
        with pytest.raises(Refused, match="statement_error"):
            runner.load(spread, ())(database, 0)
        return
    result = runner.load(spread, ())(database, 0)
    ordered = "ORDER BY" in statement and "OVER" not in statement
    assert list(result) == rows if ordered else Counter(map(repr, result)) == Counter(map(repr, rows))
    assert isinstance(result, Multiset) == (not ordered and len(rows) > 1)


@given(st.lists(st.sampled_from([*WORDS, "\n"]), max_size=14))
def test_any_statement_gets_a_result_or_a_reason(words):
    kind, reason, _ = outcome(" ".join(["select", *words]), ROWS)
    assert kind in ("ok", "rejected_nondeterministic") or reason


@pytest.mark.parametrize(("rows", "expected"), [(1000, "ok"), (1001, "error")])
def test_a_result_has_at_most_a_thousand_rows(rows, expected):
    statement = "SELECT 1 FROM t, u UNION ALL SELECT 1 FROM u LIMIT {}"
    numbers = ["\n".join(map(str, range(count))) for count in (100, 10)]
    kind, reason, _ = outcome(statement.format(rows), "t(a)\n{}\nu(a)\n{}".format(*numbers))
    assert (kind, reason) == (expected, "too_many_rows" if expected == "error" else "")


def test_a_statement_stops_at_the_same_step_at_every_run():
    """The longest recursion that is let through is the same twice, however long the first took."""
    statement = "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {}) SELECT count(*) FROM n"

    def longest():
        low, high = 1, 1 << 20
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if outcome(statement.format(middle), ROWS)[0] == "ok" else (low, middle)
        return low

    assert longest() == longest() > 1000


def test_a_statement_that_doubles_while_it_is_prepared_ends_at_the_bound_of_the_heap():
    case = next(case for case in CASES if case.tries == "doubles at each level")
    assert outcome(case.statement, case.database) == ("error", "memory", "")


def test_reading_a_declared_column_in_any_case_and_quotes_is_allowed():
    database = "Order_Items(Id,Group_Name)\n1,'x'"
    assert outcome('SELECT ID, [group_name] FROM ORDER_ITEMS AS o WHERE "o"."id" = 1', database) == ("ok", "", "1,'x'")


def test_a_table_may_have_a_keyword_as_its_name():
    assert outcome('SELECT "order" FROM "select"', "select(order,group)\n1,2") == ("ok", "", "1")
