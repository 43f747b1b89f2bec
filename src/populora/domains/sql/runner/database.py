"""The text forms of SQL: databases (inputs) and tables (outputs), read and written in linear time. No SQL of the text is executed.

A database is a list of tables, each ``(name, ((column, type), …), [row, …])``; a row is a tuple of integers, reals, texts and None. A type
is INTEGER, REAL, TEXT or empty. A result is a list of rows.
"""

import re
from collections.abc import Iterable
from typing import Any

from populora.domains.sql.runner.literals import Row, Scalar, read_row, rounded, sorting_key, write_row
from populora.sandbox.runner import Multiset, Refused

Table = tuple[str, tuple[tuple[str, str], ...], list[Row]]

MAX_TABLES, MAX_COLUMNS, MAX_ROWS = 20, 30, 1000
"""Most tables of a database, columns of a table and rows of a database."""
NO_ROWS = "no rows"

_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,29}"
_HEADER = re.compile(rf"({_NAME})\s*\(([A-Za-z0-9_,\s]+)\)", re.ASCII)
_COLUMN = re.compile(rf"\s*({_NAME})(?:\s+(INTEGER|REAL|TEXT))?\s*", re.ASCII | re.IGNORECASE)
_NUMERIC = re.compile(r"[ ]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ ]*")
_ROW_NUMBERS = ("rowid", "oid", "_rowid_")


def parse_inputs(text: str) -> list[Table]:
    """Read a database. Raises `Refused`: ``malformed_database``, or what `read_row` raises."""
    tables: list[Table] = []
    for line in _lines(text):
        header = _HEADER.fullmatch(line)
        if header:
            tables.append((header[1], _columns(header[2]), []))
        elif tables:
            tables[-1][2].append(_row_of_table(line, tables[-1][1]))
        else:
            raise Refused("malformed_database")
    names = [name.lower() for name, _, _ in tables]
    if not 0 < len(tables) <= MAX_TABLES or sum(len(rows) for _, _, rows in tables) > MAX_ROWS or not _are_fit(names):
        raise Refused("malformed_database")
    return tables


def write_inputs(database: Iterable[Table]) -> str:
    """Write a database in its canonical text."""
    lines: list[str] = []
    for name, columns, rows in database:
        lines.append(f"{name}({','.join(' '.join(filter(None, column)) for column in columns)})")
        lines += map(write_row, rows)
    return "\n".join(lines)


def parse_output(text: str) -> list[Row]:
    """Read a result, reals as `rounded`. Raises `Refused`: ``malformed_table``, or what `read_row` raises."""
    if text.strip() == NO_ROWS:
        return []
    rows = [tuple(map(rounded, read_row(line, "malformed_table"))) for line in _lines(text)]
    if len({len(row) for row in rows}) != 1:
        raise Refused("malformed_table")
    return rows


def write_output(rows: list[Row] | Multiset) -> str:
    """Write a result in its canonical text. The rows of a multiset are sorted: NULL, then numbers, then texts."""
    ordered: Any = sorted(list[Any](rows), key=sorting_key) if isinstance(rows, Multiset) else rows
    return "\n".join(map(write_row, ordered)) or NO_ROWS


def _lines(text: str) -> list[str]:
    return [line for line in map(str.strip, text.split("\n")) if line]


def _columns(text: str) -> tuple[tuple[str, str], ...]:
    columns = [_COLUMN.fullmatch(part) for part in text.split(",")]
    read = tuple((column[1], (column[2] or "").upper()) for column in columns if column)
    names = [name.lower() for name, _ in read]
    if not 0 < len(read) == len(columns) <= MAX_COLUMNS or not _are_fit(names) or not set(names).isdisjoint(_ROW_NUMBERS):
        raise Refused("malformed_database")
    return read


def _are_fit(names: list[str]) -> bool:
    return len(set(names)) == len(names) and not any(name.startswith("sqlite_") for name in names)


def _row_of_table(line: str, columns: tuple[tuple[str, str], ...]) -> Row:
    row = read_row(line, "malformed_database")
    if len(row) != len(columns):
        raise Refused("malformed_database")
    if any(_is_converted(value, kind) for value, (_, kind) in zip(row, columns, strict=True)):
        raise Refused("value_coerced")
    return row


def _is_converted(value: Scalar, kind: str) -> bool:
    """Return True if a column of this type would store another value: an affinity of SQLite."""
    match value, kind:
        case (None, _) | (_, ""):
            return False
        case str(), _:
            return kind != "TEXT" and _NUMERIC.fullmatch(value) is not None
        case int(), _:
            return kind != "INTEGER"
        case float(), "INTEGER":
            return value.is_integer() and abs(value) < 2**63
    return kind == "TEXT"
