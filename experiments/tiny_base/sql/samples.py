"""Statements that the corpus, the seeds and the held-out suite are made of, each with runs that passed the checks.

Every statement gives at least two different results over its databases, and none that depends on the order of their rows. One in forty,
by the hash of its text, belongs to evaluation alone.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from experiments.tiny_base.samples import HELD_OUT_ONE_IN
from experiments.tiny_base.sql.execution import Rejected, Run, execute, trace_text
from experiments.tiny_base.sql.grammar import random_statement
from experiments.tiny_base.sql.statements import Statement
from experiments.tiny_base.sql.tables import Database, Row, Table, database_text, random_database, rows_text

from populora.core.types import Example

PROBES = 4
MAX_TRACE_CHARS, MAX_TEXT_CHARS = 390, 110
"""Longest trace and longest text of a database."""
COLUMNS = "abcsxyr"
_CLOSE = (" JOIN ", " GROUP BY ", "DISTINCT ", " UNION ", " IN (SELECT")


@dataclass(frozen=True)
class Sample:
    """A statement that passed the checks, with its runs."""

    statement: Statement
    budget: int
    databases: tuple[Database, ...]
    runs: tuple[Run, ...]

    @property
    def source(self) -> str:
        return self.statement.text

    def example(self, index: int) -> Example:
        return Example(database_text(self.databases[index]), rows_text(self.runs[index].canonical))

    @property
    def empty(self) -> int | None:
        """The first run whose result has no rows."""
        return next((index for index, run in enumerate(self.runs) if not run.rows), None)

    @property
    def richest(self) -> int:
        """The run whose result has the most values."""
        return max(range(len(self.runs)), key=lambda index: sum(map(len, self.runs[index].rows)))


def normalised(source: str) -> str:
    """A statement's identity: its text without layout."""
    return " ".join(source.split()).removesuffix(";").rstrip()


def held_out(source: str) -> bool:
    """Tell whether this statement belongs to evaluation only (one in `HELD_OUT_ONE_IN`, by hash of the normalised text)."""
    digest = hashlib.sha256(normalised(source).encode()).digest()
    return int.from_bytes(digest[:4], "little") % HELD_OUT_ONE_IN == 0


def draw_sample(rng: np.random.Generator, budget: int, evaluation: bool = False) -> Sample:
    """A statement with `PROBES` runs on distinct databases, at least two distinct results, short enough traces."""
    while True:
        statement = random_statement(rng, budget)
        if held_out(statement.text) != evaluation:
            continue
        sample = _sample(rng, statement, budget)
        if sample:
            return sample


def _sample(rng: np.random.Generator, statement: Statement, budget: int) -> Sample | None:
    """The statement with databases that it fits, if a few tries find them."""
    text = statement.text
    nullable = [name for name in COLUMNS if f"{name} IS N" in text]
    if rng.random() < 0.06:
        nullable.append(COLUMNS[int(rng.integers(len(COLUMNS)))])
    close = any(word in text for word in _CLOSE)
    drawn: dict[str, tuple[Database, Run]] = {}
    for _ in range(3 * PROBES):
        database = random_database(rng, statement.schema, close, nullable)
        if len(name := database_text(database)) > MAX_TEXT_CHARS or name in drawn:
            continue
        try:
            run = run_on(statement, database)
        except Rejected:
            continue
        if _is_empty(run) and rng.random() > 0.1 * len(drawn):
            continue  # a result that says little is the exception
        drawn[name] = database, run
        if len(drawn) == PROBES:
            databases, runs = zip(*drawn.values(), strict=True)
            several = len({rows_text(run.canonical) for run in runs}) >= 2
            return Sample(statement, budget, databases, runs) if several else None
    return None


def _is_empty(run: Run) -> bool:
    return not any(value for row in run.rows for value in row)


def run_on(statement: Statement, database: Database) -> Run:
    """Execute, and refuse a long trace. Raises `Rejected`."""
    run = execute(statement, database)
    if len(trace_text(run.steps)) > MAX_TRACE_CHARS:
        raise Rejected("a long trace")
    return run


def needed(statement: Statement, database: Database) -> Database:
    """The tables and columns that the statement reads."""
    used = statement.used
    return tuple(table.kept(used[table.name]) for table in database if table.name in used)


def smallest(statement: Statement, database: Database, run: Run) -> tuple[Database, Run]:
    """The database without the columns and rows that the result does not need, and its run."""
    database = needed(statement, database)
    shortened = execute(statement, database)
    for place in range(len(database)):
        for row in database[place].rows:
            fewer = _without(database, place, row)
            if not fewer[place].rows:
                break
            try:
                candidate = execute(statement, fewer)
            except Rejected:
                continue
            if candidate.canonical == run.canonical:
                database, shortened = fewer, candidate
    return database, shortened


def _without(database: Database, place: int, row: Row) -> Database:
    table = database[place]
    index = table.rows.index(row)
    return (*database[:place], Table(table.name, table.columns, table.rows[:index] + table.rows[index + 1 :]), *database[place + 1 :])
