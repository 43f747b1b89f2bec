"""The domain of SQL: a program is one SELECT of SQLite, an input a small database, an output the rows of the result.

Results compare as multisets of rows, unless the outermost SELECT has ORDER BY. The text of a database is a line ``name(column,column)`` for
each table, followed by a line of literals for each row (`populora.domains.sql.runner.database`).
"""

import re
from importlib.metadata import version

from populora.core.errors import ConfigError
from populora.core.types import Example
from populora.domains.declaration import Domain, Metric
from populora.sandbox.runner import Runner

MEASURES = (
    ("joins", 0, 4, "Joins: tables joined to others."),
    ("nesting", 0, 4, "Nesting: SELECTs around the innermost."),
    (
        "clauses", 0, 12,
        "Clauses: WHERE, GROUP BY, HAVING, ORDER BY, LIMIT, DISTINCT, set operations, AND, OR, CASE and windows.",
    ),
    ("columns", 1, 12, "Columns: names of tables and columns."),
)  # fmt: skip
"""Name, range and meaning of each measure, in the order of `populora.domains.sql.runner.measures.measure_tree`. Values may lie outside."""

REASONS = (
    "malformed_database", "value_coerced", "malformed_table", "not_one_select", "unparsable_statement", "forbidden_construct",
    "unknown_name", "statement_error", "too_many_steps", "too_many_rows", "unsupported_value", "value_too_long",
)  # fmt: skip
"""The reasons that the runner refuses with."""

_TEXT = re.compile(r"'(?:[^']|'')*'")


def explain(answer: str, expected: str) -> str:
    """Name a wrong result ``wrong_width`` if its rows have another number of columns, else ``wrong``."""
    return "wrong" if "no rows" in (answer, expected) or _width(answer) == _width(expected) else "wrong_width"


def facts() -> dict[str, str]:
    """Name the versions of SQLite and of the parser: steps, scan order and messages depend on them. The sandbox starts this interpreter.

    Raises `ConfigError` where one of them is not installed.
    """
    try:
        import sqlite3  # not at the top: a Python without it still has the other domains

        return {"sqlglot": version("sqlglot"), "sqlite": sqlite3.sqlite_version}
    except ImportError as error:  # also of `version`
        raise ConfigError(f"the domain of SQL needs sqlglot and a Python with sqlite3: {error}") from error


def _width(rows: str) -> int:
    return _TEXT.sub("", rows.partition("\n")[0]).count(",")


DOMAIN = Domain(
    name="sql",
    version="1",
    package="populora.domains.sql",
    runner=Runner("sql", "populora.domains.sql.runner", packages=("sqlglot",), reasons=REASONS, contained=True),
    fences=("sql", "sqlite"),
    metrics=tuple(Metric(name, name, low, high, meaning) for name, low, high, meaning in MEASURES),
    identity=("SELECT a FROM t", Example("t(a)\n1\n2", "1\n2")),
    shown=("clauses", "nesting"),
    lexer="sql",
    explain=explain,
    facts=facts,
)
