"""A runner for statements on whole SQLite files (`populora.sandbox.runner`), whose inputs are a file, compressed and in base64.

Guard and order of rows are those of the domain of SQL. Its bounds are wider, since a file may be large, and these differ:

- functions of dates are there, but not the clock and not the machine's time zone;
- bytes that are no UTF-8 are left out of texts, as in the official evaluation of Spider;
- a text in double quotes that names no column is a text, as SQLite reads it;
- a statement runs on the rows as they are stored, so that a tie is decided by their order.

It measures and parses nothing. The text of a result is the types of its first row, or ``no rows``: results may be too long to be shown.
"""

import base64
import sqlite3
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from populora.domains.sql.runner.database import NO_ROWS
from populora.domains.sql.runner.guard import FUNCTIONS, LIMITS, Bounds, looks_of, open_connection, read_rows
from populora.domains.sql.runner.literals import rounded
from populora.domains.sql.runner.statement import read_statement
from populora.sandbox.runner import Multiset, Refused

HEAP_BYTES = 1 << 30
DATES = {"date": 0, "time": 0, "datetime": 0, "julianday": 0, "strftime": 1}
"""Functions of dates, and the number of arguments before the moment. Without a moment they read the clock."""
MACHINE = ("now", "subsec", "subsecond", "localtime", "utc")
"""Arguments by which they read the clock or the time zone."""
LENGTHS = LIMITS | {sqlite3.SQLITE_LIMIT_LENGTH: 1 << 24, sqlite3.SQLITE_LIMIT_COLUMN: 2000}
MAX_STEPS, MAX_ROWS = 100_000_000, 50_000


def load(program: str, rules: Sequence[str]) -> Callable[[str, int], list[Any]]:
    """Read a statement; ``rules`` is empty. Raises `Refused`: what `read_statement` and the guard raise, and ``malformed_database``."""
    statement = read_statement(program, quoted_texts=True)
    bounds = Bounds(looks_of(MAX_STEPS), MAX_ROWS, LENGTHS, FUNCTIONS | DATES.keys())

    def call(inputs: str, repetition: int) -> list[Any]:
        clock: list[str] = []
        with closing(open_connection(HEAP_BYTES)) as connection:
            connection.text_factory = lambda data: data.decode(errors="ignore")
            columns = _open_file(connection, zlib.decompress(base64.b64decode(inputs)))
            _add_dates(connection, clock)
            try:
                rows = [tuple(map(rounded, row)) for row in read_rows(connection, statement, columns, bounds)]
            except Refused as refusal:
                raise Refused("forbidden_construct") if clock else refusal from None
        return rows if statement.ordered or len(rows) <= 1 else Multiset(rows)

    return call


def write_output(rows: list[tuple[Any, ...]]) -> str:
    """Write the types of the first row."""
    return ",".join(type(value).__name__ for value in rows[0]) if rows else NO_ROWS


def _open_file(connection: sqlite3.Connection, file: bytes) -> dict[str, list[str]]:
    """Load the bytes of a file, and return the columns of its tables and views. Raises `Refused`."""
    # A file that was written with a log says so in these two bytes, and SQLite would look for the log.
    file = file[:18] + b"\1\1" + file[20:] if file[18:20] == b"\2\2" else file
    try:
        connection.deserialize(file)
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        )
        return {name: _columns(connection, name) for (name,) in names.fetchall()}
    except sqlite3.Error as error:
        raise Refused("malformed_database") from error


def _columns(connection: sqlite3.Connection, name: str) -> list[str]:
    quoted = name.replace('"', '""')
    try:
        return [row[1] for row in connection.execute(f'PRAGMA table_xinfo("{quoted}")')]
    except sqlite3.OperationalError:  # a view of a table that is not there: it has nothing to read
        return []


def _reads_the_machine(argument: Any) -> bool:
    """Return True if a function of dates may ask the machine. SQLite reads bytes as a text, and a text up to its first NUL."""
    match argument:
        case str():
            return argument.partition("\0")[0].lower() in MACHINE
        case bytes():
            return True
    return False


def _add_dates(connection: sqlite3.Connection, clock: list[str]) -> None:
    """Replace the functions of dates by ones that refuse to read the clock, which they then note."""
    calendar = sqlite3.connect(":memory:")

    def make(name: str, leading: int) -> Callable[..., Any]:
        def date(*arguments: Any) -> Any:
            if len(arguments) <= leading or any(map(_reads_the_machine, arguments)):
                clock.append(name)
                raise ValueError(name)
            return calendar.execute(f"SELECT {name}({', '.join('?' * len(arguments))})", arguments).fetchone()[0]

        return date

    for name, leading in DATES.items():
        connection.create_function(name, -1, make(name, leading), deterministic=True)
