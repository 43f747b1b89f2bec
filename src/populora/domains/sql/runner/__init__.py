"""The runner of SQL (`populora.sandbox.runner`): a program is one SELECT of SQLite, an input a small database, an output its rows.

The rows are a sequence if the outermost SELECT has ORDER BY, else a multiset. A result must not depend on the physical order of the rows:
the second call puts those of each table in two other orders. It needs Python 3.11 for the limits and error codes of SQLite, and
SQLite 3.31 for the limit of its heap.
"""

from collections.abc import Callable, Sequence
from typing import Any

from populora.domains.sql.runner.database import Table, parse_inputs, parse_output, write_inputs, write_output
from populora.domains.sql.runner.guard import run_statement
from populora.domains.sql.runner.literals import Row
from populora.domains.sql.runner.measures import measure_tree
from populora.domains.sql.runner.statement import Statement, read_statement
from populora.sandbox.runner import Multiset, Refused

__all__ = ["load", "measure", "parse_inputs", "parse_output", "write_inputs", "write_output"]


def load(program: str, rules: Sequence[str]) -> Callable[[str, int], list[Any]]:
    """Read a statement; ``rules`` are banned constructs, as `read_statement` takes them.

    An odd repetition runs it twice: on the rows in reverse, which turns every tie, and on the rows moved by one place, which leaves none
    in its place. Where these two results differ it returns both texts, which equal no result. Raises `Refused`.
    """
    statement = read_statement(program, rules)

    def call(inputs: str, repetition: int) -> list[Any]:
        database = parse_inputs(inputs)
        _check_names(statement, database)
        if repetition % 2 == 0:
            return _result(statement, run_statement(statement, database))
        backwards = run_statement(statement, [(name, columns, rows[::-1]) for name, columns, rows in database])
        moved = [(name, columns, rows[1:] + rows[:1]) for name, columns, rows in database]
        results = [_result(statement, rows) for rows in (backwards, run_statement(statement, moved, reverse_scans=True))]
        texts = list(map(write_output, results))
        return results[0] if texts[0] == texts[1] else texts

    return call


def measure(program: str) -> tuple[tuple[int, int, int, int], str]:
    """Return the measures of a statement (`measure_tree`), and its normal form. Raises `Refused`."""
    statement = read_statement(program)
    return measure_tree(statement.tree), statement.text


def _result(statement: Statement, rows: list[Row]) -> list[Row] | Multiset:
    return rows if statement.ordered or len(rows) <= 1 else Multiset(rows)


def _check_names(statement: Statement, database: list[Table]) -> None:
    """Refuse an unknown column in double quotes, which SQLite would read as a text or not, as it was compiled."""
    declared = {column.lower() for _, columns, _ in database for column, _ in columns}
    if not statement.quoted_columns <= declared | statement.aliases:
        raise Refused("unknown_name")
