"""Statements: what is accepted as a program of SQL, and what the runner needs to know of it.

The tokens are SQLite's own (`lexer`). The tree is that of sqlglot, which decides whether the program is one SELECT and yields the measures.
It protects nothing: the guard does (`guard`).
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlglot import errors, exp
from sqlglot.dialects.sqlite import SQLite

from populora.domains.sql.runner.lexer import read_tokens
from populora.sandbox.runner import Refused

logging.getLogger("sqlglot").disabled = True  # it warns of statements that it reads as mere words
_SQLITE = SQLite()


@dataclass(frozen=True)
class Statement:
    """One SELECT."""

    text: str
    """The normal form: the tokens, separated by spaces. Keywords and names that are not quoted are in lower case."""
    ordered: bool
    """The outermost SELECT has an ORDER BY."""
    quoted_columns: frozenset[str]
    """Columns in double quotes without a table, in lower case. SQLite may read an unknown one as a text."""
    aliases: frozenset[str]
    """Names that the statement itself gives to columns, in lower case."""
    shared_tables: frozenset[str]
    """Names of common table expressions, in lower case."""
    tree: exp.Expr


def read_statement(program: str, rules: Iterable[str] = ()) -> Statement:
    """Read a program. ``rules`` are banned constructs, each one or several tokens in a row: ``limit``, ``group by``, ``left join``.

    Raises `Refused`: what `read_tokens` raises, ``not_one_select``, ``unparsable_statement`` or ``banned_construct``.
    """
    tokens = read_tokens(program)
    if not tokens or tokens[0] not in ("select", "with"):
        raise Refused("not_one_select")
    text = " ".join(tokens)
    tree = _parse(text)
    if any(_contains(tokens, read_tokens(rule)) for rule in rules):
        raise Refused("banned_construct")
    columns = [column for column in tree.find_all(exp.Column) if not column.table and column.this.args.get("quoted")]
    names = [alias.alias for alias in tree.find_all(exp.Alias)]
    names += [column.name for alias in tree.find_all(exp.TableAlias) for column in alias.columns]
    shared = _folded(table.alias for table in tree.find_all(exp.CTE))
    return Statement(text, _is_ordered(tokens), _folded(column.name for column in columns), _folded(names), shared, tree)


def _parse(text: str) -> exp.Expr:
    try:
        trees = _SQLITE.parse(text)
    except (errors.SqlglotError, RecursionError, ValueError) as error:
        raise Refused("unparsable_statement") from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Select | exp.SetOperation):
        raise Refused("not_one_select")
    return trees[0]


def _folded(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)


def _contains(tokens: Sequence[str], part: Sequence[str]) -> bool:
    return any(tokens[at : at + len(part)] == part for at in range(len(tokens) - len(part) + 1))


def _is_ordered(tokens: Iterable[str]) -> bool:
    """Return True if there is an ORDER BY outside all parentheses: that of a subquery, a window or an aggregate is inside."""
    depth = 0
    for token in tokens:
        depth += (token == "(") - (token == ")")  # noqa: S105 - no password
        if token == "order" and depth == 0:  # noqa: S105 - no password
            return True
    return False
