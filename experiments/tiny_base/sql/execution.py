"""Execute the generator's own statements twice: by SQLite, whose result counts, and step by step, for the trace.

Only text that ``grammar.py`` made is executed here: this is the corpus builder, not the verifier. A trace names each table that is read,
then tells each row with its names (``a=4,b=5``), each condition with values put in, and what the row adds to the result.
"""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from experiments.tiny_base.sql.expressions import Names, subqueries, traced
from experiments.tiny_base.sql.statements import Query, Statement
from experiments.tiny_base.sql.tables import Database, Row, Table, literal, row_text, sorting_key

Step = tuple[str, Literal["name", "value", "step"]]
"""A part of a trace: the name of a column that is bound, its value, or anything that follows from these."""
MAX_INT, MAX_CHARS, MAX_ROWS = 30, 6, 6


class Rejected(Exception):
    """The result depends on the order of rows, or a value left the ranges that the tiny base knows."""


@dataclass(frozen=True)
class Run:
    """One execution: the rows of the result, in an order that the statement allows, and the trace."""

    rows: tuple[Row, ...]
    steps: tuple[Step, ...]
    ordered: bool

    @property
    def canonical(self) -> tuple[Row, ...]:
        """The rows in the order in which prompts show them."""
        return self.rows if self.ordered else tuple(sorted(self.rows, key=sorting_key))


def execute(statement: Statement, database: Database) -> Run:
    """Run a statement on a database. Raises `Rejected`."""
    run = _Run(statement, database)
    if len(run.rows) > MAX_ROWS or not all(in_range(value) for row in run.rows for value in row):
        raise Rejected("result out of range")
    ordered = bool(statement.query.order) and not statement.union
    rows = sqlite_rows(statement.text, database)
    same = rows == run.rows if ordered else Counter(rows) == Counter(run.rows)
    if not same:
        raise AssertionError(f"SQLite and the trace differ: {statement.text!r} on {database}: {rows} and {run.rows}")
    return Run(tuple(run.rows), tuple(run.steps), ordered)


def in_range(value: object) -> bool:
    return abs(value) <= MAX_INT if isinstance(value, int) else value is None or len(str(value)) <= MAX_CHARS


@cache
def _connection(schema: tuple[tuple[str, tuple[str, ...]], ...]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    for name, columns in schema:
        connection.execute(f"CREATE TABLE {name}({','.join(columns)})")
    return connection


def sqlite_rows(text: str, database: Database) -> list[Row]:
    """The rows that SQLite gives for the text of a statement."""
    connection = _connection(tuple((table.name, table.columns) for table in database))
    for table in database:
        connection.execute(f"DELETE FROM {table.name}")  # noqa: S608 - names of our own grammar
        marks = ",".join("?" * len(table.columns))
        connection.executemany(f"INSERT INTO {table.name} VALUES({marks})", table.rows)
    return connection.execute(text).fetchall()


class _Run:
    """An execution under way."""

    def __init__(self, statement: Statement, database: Database):
        self.tables = {table.name: table for table in database}
        self.steps: list[Step] = []
        if statement.named:
            rows = self.query(statement.named)
            self.tables["v"] = Table("v", tuple(item.name for item in statement.named.items), tuple(rows))
        self.rows = self.query(statement.query)
        if statement.union:
            self.rows += self.query(statement.union)
            if not statement.keep_all:
                self.rows = list(dict.fromkeys(self.rows))

    def step(self, text: str) -> None:
        self.steps.append((text, "step"))

    def query(self, query: Query) -> list[Row]:
        names: Names = {}
        for inner in subqueries(query.where):
            values = [row[0] for row in self.query(inner.query)]
            names[inner.text] = tuple(values) if inner.many else values[0]
        self.step(f"\nFROM {query.table}")
        output = _Output(query, self.step)
        for row in self.tables[query.table].rows:
            self._bind(query.table, row, names)
            if query.join:
                for other in self.tables[query.join[0]].rows:
                    self._bind(query.join[0], other, names)
                    on = literal(names[query.join[1].text]), literal(names[query.join[2].text])
                    meets = on[0] == on[1] != "NULL"
                    self.step(f" ON {query.join[1].text}={on[0]} = {query.join[2].text}={on[1]}; {'NULL' if 'NULL' in on else meets}")
                    if meets:
                        output.take(names)
            else:
                output.take(names)
        return output.finish()

    def _bind(self, table: str, row: Row, names: Names) -> None:
        for index, (name, value) in enumerate(zip(self.tables[table].columns, row, strict=True)):
            self.steps.append(((",{}=" if index else "\n{}=").format(name), "name"))
            self.steps.append((literal(value), "value"))
            names[name] = value


class _Output:
    """What the rows of one query add up to."""

    def __init__(self, query: Query, step):
        self.query, self.step = query, step
        self.rows: list[tuple[Row, tuple]] = []
        """Rows of the result with their sorting keys."""
        self.groups: dict[object, Names] = {}
        self.aggregates = query.aggregates
        if self.aggregates and not query.group:
            self.groups[None] = self._fresh({})

    def _fresh(self, names: Names) -> Names:
        return {**names, **{part.text: 0 if part.function == "COUNT" else None for part in self.aggregates}}

    def take(self, names: Names) -> None:
        """Take in a row of the tables."""
        query = self.query
        if query.where is not None:
            self.step(f" WHERE {traced(query.where, names)}")
            if not query.where.value(names):
                return
        if not self.aggregates and not query.group:
            self._give(names)
            return
        key = query.group.value(names) if query.group else None
        group = self.groups.setdefault(key, self._fresh({query.group.text: key} if query.group else {}))
        texts = [f"{query.group.text}={literal(key)}"] if query.group else []
        for part in self.aggregates:
            text, group[part.text] = part.step(group[part.text], names)
            texts.append(text)
        self.step(f" GROUP BY {', '.join(texts)}")

    def _give(self, names: Names) -> None:
        """Add a row to the result."""
        query = self.query
        row = tuple(item.expression.value(names) for item in query.items)
        keys = tuple(key.value(names) for key, _ in query.order)
        if not all(in_range(value) for value in (*row, *keys)):
            raise Rejected("value out of range")
        text = f" SELECT {', '.join(traced(item.expression, names) for item in query.items)}"
        if query.order:
            text += f" ORDER BY {', '.join(traced(key, names) for key, _ in query.order)}"
        if query.distinct and row in [row for row, _ in self.rows]:
            self.step(f"{text} DISTINCT False")
            return
        self.step(f"{text} -> {row_text(row)}")
        self.rows.append((row, keys))

    def finish(self) -> list[Row]:
        """The rows of the result, sorted and cut."""
        query = self.query
        for group in self.groups.values():
            self.step("\n" + ", ".join(part.trace(group) for part in ([query.group] if query.group else []) + list(self.aggregates)))
            if query.having is not None:
                self.step(f" HAVING {traced(query.having, group)}")
                if not query.having.value(group):
                    continue
            self._give(group)
        for place in reversed(range(len(query.order))):
            self.rows.sort(key=lambda item: sorting_key((item[1][place],)), reverse=query.order[place][1])
        if any(left[1] == right[1] and left[0] != right[0] for left, right in zip(self.rows, self.rows[1:], strict=False) if query.order):
            raise Rejected("the order is not total")
        if query.order and len(self.rows) > 1:
            self.step("\nORDER BY " + "; ".join(row_text(keys) for _, keys in self.rows))
        return [row for row, _ in self.rows][: query.limit or None]


def trace_text(steps: Sequence[Step]) -> str:
    return "".join(text for text, _ in steps)
