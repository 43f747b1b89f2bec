"""Small databases: their text as prompts show it, and random ones.

A column's name tells its type, as the names of variables do in the Python programs: ``a b c`` and ``x y`` hold integers, ``s`` and
``r`` strings. ``t`` has columns of its own and ``u`` others, so no name needs a table before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Value = int | str | None
Row = tuple[Value, ...]
TEXTS = ("s", "r")
LETTERS = "abcde"
NO_ROWS = "no rows"
_TEXTS = (*LETTERS * 8, *(left + right for left in LETTERS for right in LETTERS))


@dataclass(frozen=True)
class Table:
    """A table: its name, the names of its columns, and its rows in the order in which they were inserted."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def text(self) -> str:
        return "\n".join([f"{self.name}({','.join(self.columns)})", *map(row_text, self.rows)])

    def kept(self, columns: Sequence[str]) -> "Table":
        """The table with these columns alone."""
        places = [index for index, name in enumerate(self.columns) if name in columns]
        rows = tuple(tuple(row[place] for place in places) for row in self.rows)
        return Table(self.name, tuple(self.columns[place] for place in places), rows)


Database = tuple[Table, ...]


def database_text(database: Database) -> str:
    return "\n".join(table.text for table in database)


def literal(value: Value) -> str:
    """A value as SQL writes it."""
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def row_text(row: Row) -> str:
    return ",".join(map(literal, row))


def rows_text(rows: Sequence[Row]) -> str:
    """A result as text, its rows in the order given."""
    return "\n".join(map(row_text, rows)) or NO_ROWS


def sorting_key(row: Row) -> tuple[tuple[int, Value], ...]:
    """The order of rows in which SQLite sorts: NULL, then numbers, then strings."""
    return tuple((0, 0) if value is None else (1 if isinstance(value, int) else 2, value) for value in row)


def random_text(rng: np.random.Generator) -> str:
    return _TEXTS[int(rng.integers(len(_TEXTS)))]


def random_database(rng: np.random.Generator, schema: dict[str, tuple[str, ...]], close: bool, nullable: Sequence[str]) -> Database:
    """Tables of 1 to 5 rows, of 1 to 3 each if there are two. ``close``: few different values, so that keys meet each other."""
    pools: tuple[list[Value], list[Value]] = (
        [int(value) for value in rng.permutation(10)[: 3 if close else 10]],
        [random_text(rng) for _ in range(2 if close else 12)],
    )
    most = 3 if len(schema) > 1 else int(rng.choice((2, 3, 4, 5), p=(0.3, 0.3, 0.25, 0.15)))

    def draw(column: str) -> Value:
        pool = pools[column in TEXTS]
        return None if column in nullable and rng.random() < 0.3 else pool[int(rng.integers(len(pool)))]

    tables = []
    for name, columns in schema.items():
        rows = tuple(tuple(map(draw, columns)) for _ in range(1 + int(rng.integers(most))))
        tables.append(Table(name, columns, rows))
    return tuple(tables)
