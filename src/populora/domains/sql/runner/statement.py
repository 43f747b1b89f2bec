"""Statements: what is accepted as a program of SQL, and what the runner needs to know of it.

The tokens are SQLite's own (`lexer`). The tree is that of sqlglot, which decides whether the program is one SELECT and yields the measures.
It protects nothing: the guard does (`guard`).
"""

import logging
from collections.abc import Iterable
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
    """The normal form: the tokens, separated by spaces. Keywords and names that are not quoted are in lower case. SQLite runs it."""
    ordered: bool
    """The outermost SELECT has an ORDER BY."""
    shared_tables: frozenset[str]
    """Names of common table expressions, in lower case."""
    tree: exp.Expr


def read_statement(program: str, quoted_texts: bool = False) -> Statement:
    """Read a program. With ``quoted_texts`` SQLite may read a name in double quotes that nothing has as a text.

    Without them the normal form has it in backticks, in which it is a name to every SQLite. Raises `Refused`: what `read_tokens` raises,
    ``not_one_select`` or ``unparsable_statement``.
    """
    tokens = read_tokens(program)
    if not tokens or tokens[0] not in ("select", "with"):
        raise Refused("not_one_select")
    tree = _parse(" ".join(tokens))
    text = " ".join(tokens if quoted_texts else map(_name_in_backticks, tokens))
    return Statement(text, _is_ordered(tokens), frozenset(table.alias.lower() for table in tree.find_all(exp.CTE)), tree)


def _parse(text: str) -> exp.Expr:
    try:
        trees = _SQLITE.parse(text)
    except (errors.SqlglotError, RecursionError, ValueError) as error:
        raise Refused("unparsable_statement") from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Select | exp.SetOperation):
        raise Refused("not_one_select")
    return trees[0]


def _name_in_backticks(token: str) -> str:
    name = token[1:-1].replace('""', '"').replace("`", "``")
    return f"`{name}`" if token.startswith('"') else token


def _is_ordered(tokens: Iterable[str]) -> bool:
    """Return True if there is an ORDER BY outside all parentheses: that of a subquery, a window or an aggregate is inside."""
    depth = 0
    for token in tokens:
        depth += (token == "(") - (token == ")")  # noqa: S105 - no password
        if token == "order" and depth == 0:  # noqa: S105 - no password
            return True
    return False
