"""The guard: runs one statement on an in-memory database that allows nothing but reading the declared columns.

Its layers do not rely on each other. An authoriser denies every act but SELECT, READ of declared columns, and functions of a list. A
progress handler stops a statement after a number of steps of SQLite's virtual machine, the same everywhere with one version of SQLite.
Limits bound values, rows, results and statements. The heap is bounded, and temporary tables stay in memory. The sandbox is around all this.
Its CPU time ends a statement that compares long texts in each step.
"""

import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from populora.domains.sql.runner.database import Table
from populora.domains.sql.runner.lexer import MAX_CHARS
from populora.domains.sql.runner.literals import Row, check_shown, rounded
from populora.domains.sql.runner.statement import Statement
from populora.sandbox.runner import Refused

if sqlite3.sqlite_version_info < (3, 31):  # an older one ignores the limit of its heap without an error
    raise ImportError(f"the domain of SQL needs SQLite 3.31 or newer, and this Python has {sqlite3.sqlite_version}")

MAX_STEPS, STRIDE = 100_000, 100
"""Steps of SQLite's virtual machine that a statement may take in all its runs of one job, and those between two looks at them."""
MAX_ROWS = 1000
"""Most rows of a result."""
HEAP_BYTES = 64 << 20
"""Memory of SQLite in this process."""
MAX_ROW_BYTES = 4000
"""Longest row that is sorted or grouped, and longest text on the way. Longest texts of databases and results: `literals.MAX_BYTES`."""
LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: MAX_ROW_BYTES, sqlite3.SQLITE_LIMIT_SQL_LENGTH: 5 * MAX_CHARS, sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100, sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20, sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 20,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0, sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 50, sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 0, sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}  # fmt: skip
FUNCTIONS = frozenset(
    "abs avg char coalesce count cume_dist dense_rank first_value glob group_concat hex ifnull iif instr lag last_value lead length "
    "like lower ltrim max min nth_value ntile nullif percent_rank quote rank replace round row_number rtrim substr "
    "substring sum total trim typeof unicode upper".split()
)
"""Functions that depend on their arguments alone, and not on how SQLite was compiled."""

_UNREAD = re.compile(r"unrecognized token|incomplete input|.*: syntax error$")


@dataclass(frozen=True)
class Bounds:
    """What a statement may use: looks at its steps that are left, rows of its result, lengths by limit of SQLite, and functions."""

    looks: Iterator[int]
    rows: int = MAX_ROWS
    lengths: Mapping[int, int] = field(default_factory=lambda: LIMITS)
    functions: Collection[str] = FUNCTIONS


def looks_of(steps: int) -> Iterator[int]:
    """Return the looks at this number of steps. Runs that share them share the steps."""
    return iter(range(1, steps // STRIDE))


def run_statement(statement: Statement, tables: list[Table], looks: Iterator[int], reverse_scans: bool = False) -> list[Row]:
    """Run a statement on a database of its own; ``reverse_scans`` lets SQLite walk through tables backwards where no order is asked for.

    Raises `Refused`, and `MemoryError` where the heap does not suffice.
    """
    with closing(open_connection(HEAP_BYTES)) as connection:
        connection.execute(f"PRAGMA reverse_unordered_selects = {int(reverse_scans)}")
        connection.text_factory = _text
        _fill(connection, tables)
        rows = read_rows(connection, statement, {name: [column for column, _ in columns] for name, columns, _ in tables}, Bounds(looks))
    return [tuple(check_shown(rounded(check_shown(value))) for value in row) for row in rows]


def open_connection(heap_bytes: int) -> sqlite3.Connection:
    """Open an empty database in memory. SQLite's heap can be lowered later in this process, but not raised."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute(f"PRAGMA hard_heap_limit = {heap_bytes}")
    return connection


def read_rows(
    connection: sqlite3.Connection, statement: Statement, columns: Mapping[str, Collection[str]], bounds: Bounds
) -> list[tuple[Any, ...]]:
    """Run a statement that may read these columns of tables. Raises `Refused` and `MemoryError`."""
    for limit, value in bounds.lengths.items():
        connection.setlimit(limit, value)
    authorise, denied = _authoriser(columns, statement.shared_tables, bounds.functions)
    connection.set_authorizer(authorise)
    connection.set_progress_handler(lambda: next(bounds.looks, 0) == 0, STRIDE)
    try:
        rows = connection.execute(statement.text).fetchmany(bounds.rows + 1)
    except sqlite3.Error as error:
        raise Refused("forbidden_construct" if denied else _reason(error)) from error
    if len(rows) > bounds.rows:
        raise Refused("too_many_rows")
    return rows


def _fill(connection: sqlite3.Connection, tables: list[Table]) -> None:
    """Create the tables. Their names have been checked (`database.parse_inputs`): letters, digits and underscores."""
    for name, columns, rows in tables:
        declared = ", ".join(f'"{column}" {kind}' for column, kind in columns)
        connection.execute(f'CREATE TABLE "{name}" ({declared})')
        connection.executemany(f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(columns))})', rows)  # noqa: S608 - checked


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Refused("unsupported_value") from error


def _authoriser(
    columns: Mapping[str, Collection[str]], shared_tables: Iterable[str], functions: Collection[str]
) -> tuple[Callable[..., int], list[int]]:
    """Return the authoriser, and a list of the acts that it has denied.

    A table of which no column is used, as by count(*), is read as the column without a name. SQLite asks so for a common table expression
    too, but never for its columns.
    """
    readable = {name: {""} for name in shared_tables if not name.startswith("sqlite_")}
    readable |= {name.lower(): {"", *(column.lower() for column in of_table)} for name, of_table in columns.items()}
    denied: list[int] = []

    def authorise(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
        match action:
            case sqlite3.SQLITE_SELECT | sqlite3.SQLITE_RECURSIVE:
                return sqlite3.SQLITE_OK
            case sqlite3.SQLITE_READ if (second or "").lower() in readable.get((first or "").lower(), ()):
                return sqlite3.SQLITE_OK
            case sqlite3.SQLITE_FUNCTION if (second or "").lower() in functions:
                return sqlite3.SQLITE_OK
        denied.append(action)
        return sqlite3.SQLITE_DENY

    return authorise, denied


def _reason(error: sqlite3.Error) -> str:
    """Name an error of SQLite, by its code, or by its message where SQLite has one code for all."""
    match getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE) & 0xFF:
        case sqlite3.SQLITE_AUTH:
            return "forbidden_construct"
        case sqlite3.SQLITE_INTERRUPT:
            return "too_many_steps"
        case sqlite3.SQLITE_TOOBIG:
            return "value_too_long"
        case sqlite3.SQLITE_ERROR:
            return _reason_of_message(str(error))
    return "statement_error"


def _reason_of_message(message: str) -> str:
    if message.startswith(("no such table", "no such column", "unknown database")):
        return "unknown_name"
    if message.startswith("no such function"):
        return "forbidden_construct"  # one that another build of SQLite has
    return "unparsable_statement" if _UNREAD.match(message) else "statement_error"
