"""The runner of SQL (`populora.sandbox.runner`): a program is one SELECT of SQLite, an input a small database, an output its rows.

The rows are a sequence if the outermost SELECT has ORDER BY, else a multiset. A result must not depend on the physical order of the rows:
the second call puts those of each table in other orders, and lets SQLite walk through tables backwards.

It needs Python 3.11 for the limits and error codes of SQLite, and SQLite 3.31 for the limit of its heap.
"""

from collections.abc import Callable, Sequence
from typing import Any

from populora.domains.sql.runner.database import Table, parse_inputs, parse_output, write_inputs, write_output
from populora.domains.sql.runner.guard import MAX_STEPS, looks_of, run_statement
from populora.domains.sql.runner.literals import Row
from populora.domains.sql.runner.measures import measure_tree
from populora.domains.sql.runner.statement import Statement, read_statement
from populora.sandbox.runner import Multiset

__all__ = ["load", "measure", "parse_inputs", "parse_output", "write_inputs", "write_output"]


MOVES = (1, 2, 3)
"""Places by which the rows of each table are moved in further runs."""


def load(program: str, rules: Sequence[str]) -> Callable[[str, int], list[Any]]:
    """Read a statement. The domain has no rules: ``rules`` is empty.

    Its calls share `MAX_STEPS`. An odd repetition runs it on the rows in other orders (`_rearranged`). Where their results differ it
    returns their texts, which equal no result. Raises `Refused`.
    """
    statement, looks = read_statement(program), looks_of(MAX_STEPS)

    def call(inputs: str, repetition: int) -> list[Any]:
        database = parse_inputs(inputs)
        if repetition % 2 == 0:
            return _result(statement, run_statement(statement, database, looks))
        results = [_result(statement, run_statement(statement, tables, looks)) for tables in _rearranged(database)]
        results.append(_result(statement, run_statement(statement, database, looks, reverse_scans=True)))
        texts = sorted(set(map(write_output, results)))
        return results[0] if len(texts) == 1 else texts

    return call


def measure(program: str) -> tuple[tuple[int, int, int, int], str]:
    """Return the measures of a statement (`measure_tree`), and its normal form. Raises `Refused`."""
    statement = read_statement(program)
    return measure_tree(statement.tree), statement.text


def _result(statement: Statement, rows: list[Row]) -> list[Row] | Multiset:
    return rows if statement.ordered or len(rows) <= 1 else Multiset(rows)


def _rearranged(database: list[Table]) -> list[list[Table]]:
    """Put the rows of each table in other orders: reversed, which turns every tie, and moved, as a reversal keeps the row in the middle."""
    orders = [[(name, columns, rows[::-1]) for name, columns, rows in database]]
    return orders + [[(name, columns, _moved(rows, places)) for name, columns, rows in database] for places in MOVES]


def _moved(rows: list[Row], places: int) -> list[Row]:
    cut = places % len(rows) if rows else 0
    return rows[cut:] + rows[:cut]
