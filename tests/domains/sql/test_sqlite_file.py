"""Statements on whole SQLite files: the guard of the domain holds there too, and results are those of SQLite itself."""

import base64
import sqlite3
import zlib
from contextlib import closing

import pytest
import tests.domains.sql.corpus  # noqa: F401 - it adds the cases
from tests.domains.sql.corpus_case import CASES, Case

from populora.domains.sql.runner import parse_inputs, sqlite_file
from populora.sandbox.runner import Multiset, Refused

GROUPS = ("does something else", "runs a second", "reads what is no", "calls what reaches", "waits for a value")
GUARDED = [case for case in CASES if case.tries.startswith(GROUPS)]
SCRIPT = """
CREATE TABLE t(a INTEGER PRIMARY KEY, "b c" TEXT, day TEXT);
INSERT INTO t VALUES (1, 'x', '2023-01-31'), (2, NULL, '2024-02-29 12:30:00'), (3, 'it''s', 'N/A'), (4, '', NULL);
CREATE TABLE gone(a);
CREATE VIEW w AS SELECT a, day FROM t WHERE a > 1;
CREATE VIEW broken AS SELECT a FROM gone;
DROP TABLE gone;
"""
STATEMENTS = [
    "SELECT a, `b c` FROM t", "SELECT [b c] FROM t ORDER BY a DESC", "SELECT count(*) FROM w", "SELECT w.day, t.a FROM w JOIN t USING (a)",
    "SELECT date(day), time(day), datetime(day, '+1 month') FROM t", "SELECT strftime('%Y-%W', day), julianday(day) FROM t",
    "SELECT a FROM t WHERE date(day) < '2024-01-01'", "SELECT x'00ff', 9e999, char(10) FROM t", 'SELECT a FROM t WHERE "b c" = "x"',
    "SELECT max(a), total(a) FROM t GROUP BY a % 2",
]  # fmt: skip


def text_of(script: str) -> str:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(script)
        return base64.b64encode(zlib.compress(connection.serialize())).decode("ascii")


def reason_of(statement: str, text: str) -> str:
    with pytest.raises(Refused) as refusal:
        sqlite_file.load(statement, ())(text, 0)
    return str(refusal.value)


def to_fifteen_digits(row: tuple) -> list:
    return [float(f"{value:.15g}") if isinstance(value, float) else value for value in row]


@pytest.fixture(scope="module")
def file() -> str:
    return text_of(SCRIPT)


@pytest.mark.parametrize("case", GUARDED, ids=[f"{case.tries}: {case.name}" for case in GUARDED])
def test_what_the_guard_denies_in_a_database_of_the_domain_it_denies_in_a_file(case: Case):
    script = ""
    for name, columns, rows in parse_inputs(case.database):
        values = ", ".join(f"({', '.join('NULL' if value is None else repr(value) for value in row)})" for row in rows)
        script += f"CREATE TABLE {name}({', '.join(column for column, _ in columns)}); INSERT INTO {name} VALUES {values};"  # noqa: S608 - ours
    assert f"error {reason_of(case.statement, text_of(script))}" in case.accepted


@pytest.mark.parametrize("statement", STATEMENTS)
def test_results_are_those_of_sqlite(statement, file):
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCRIPT)
        expected = connection.execute(statement).fetchall()
    result = sqlite_file.load(statement, ())(file, 0)
    assert list(map(to_fifteen_digits, result)) == list(map(to_fifteen_digits, expected))
    assert isinstance(result, Multiset) == ("ORDER BY" not in statement and len(expected) > 1)


@pytest.mark.parametrize(
    "call",
    ["date()", "time('now')", "datetime('NOW', '-1 day')", "julianday('subsec')", "strftime('%s')", "strftime('%s', 'now')",
     "datetime(day, 'localtime')", "datetime(day, 'UTC')", "date(x'6e6f77')", "date(cast('now' as blob))", "strftime('%s', x'6e6f77')",
     "datetime(char(110, 111, 119, 0))", "date(day, x'7574630061')", "strftime('%s', char(78, 79, 87, 0, 97))"],
)  # fmt: skip
def test_functions_of_dates_cannot_read_the_clock_or_the_time_zone(call, file):
    assert reason_of(f"SELECT {call} FROM t", file) == "forbidden_construct"  # noqa: S608 - calls of this file


def test_files_that_are_no_database_are_named_and_a_broken_view_has_no_columns(file):
    noise = base64.b64encode(zlib.compress(b"no database" * 500)).decode("ascii")
    assert reason_of("SELECT 1", noise) == "malformed_database"
    assert reason_of("SELECT a FROM broken", file) == "unknown_name"


def test_the_text_of_a_result_is_the_types_of_its_first_row(file):
    assert sqlite_file.write_output(sqlite_file.load("SELECT a, a / 2.0, day, NULL, x'00' FROM t LIMIT 1", ())(file, 0)) == (
        "int,float,str,NoneType,bytes"
    )
    assert sqlite_file.write_output([]) == "no rows"


def test_too_many_rows_have_their_name(file):
    many = "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 60000) SELECT i FROM n"
    assert reason_of(many, file) == "too_many_rows"
