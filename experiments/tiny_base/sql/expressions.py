"""Expressions of the SQL statements: their text, value, trace and description.

A trace writes each column with its value (``a=4 + 1; 5``): copying the expression keeps the place in the statement, and reading a column
and calculating are two small steps instead of one large one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from experiments.tiny_base.sql.tables import Value, literal

Names = dict[str, Any]
"""Values by name: columns of a row, aggregates of a group, results of subqueries by their text."""


@dataclass(frozen=True)
class Form:
    """One kind of operation. ``{}`` stands for its arguments in the text and in the words of a description."""

    text: str
    words: str
    function: Callable[..., Any]
    strict: bool = True
    """Whether an argument that is NULL makes the result NULL."""
    told: bool = False
    """Whether a trace tells the values of arguments that are conditions."""


def _remainder(left: int, right: int) -> int:
    return abs(left) % right * (-1 if left < 0 else 1)  # the sign of the dividend, and no divisor is negative or 0


def _all(*values: bool | None) -> bool | None:
    return False if False in values else None if None in values else True


def _any(*values: bool | None) -> bool | None:
    return True if True in values else None if None in values else False


def _contains(value: Value, *members: Value) -> bool | None:
    return True if value in members else None if None in members else False


FORMS = {
    "+": Form("{} + {}", "{} plus {}", lambda left, right: left + right),
    "-": Form("{} - {}", "{} minus {}", lambda left, right: left - right),
    "*": Form("{} * {}", "{} times {}", lambda left, right: left * right),
    "%": Form("{} % {}", "{} mod {}", _remainder),
    "||": Form("{} || {}", "{} join {}", lambda left, right: left + right),
    "ABS": Form("ABS({} - {})", "gap {} {}", lambda left, right: abs(left - right)),
    "LENGTH": Form("LENGTH({})", "length {}", len),
    "UPPER": Form("UPPER({})", "upper {}", str.upper),
    "CASE": Form("CASE WHEN {} THEN {} ELSE {} END", "branch {} ({}) otherwise ({})", lambda test, then, other: then if test else other,
                 strict=False, told=True),
    "=": Form("{} = {}", "{} equal {}", lambda left, right: left == right),
    "<>": Form("{} <> {}", "{} unequal {}", lambda left, right: left != right),
    ">": Form("{} > {}", "{} more {}", lambda left, right: left > right),
    "<": Form("{} < {}", "{} less {}", lambda left, right: left < right),
    "BETWEEN": Form("{} BETWEEN {} AND {}", "{} slice {} {}", lambda value, low, high: low <= value <= high),
    "IN": Form("{} IN ({}, {})", "{} contains {} {}", _contains),
    "IN query": Form("{} IN {}", "{} contains {}", lambda value, members: _contains(value, *members)),
    "IS NULL": Form("{} IS NULL", "{} index", lambda value: value is None, strict=False),
    "IS NOT NULL": Form("{} IS NOT NULL", "{} keep", lambda value: value is not None, strict=False),
    "AND": Form("{} AND {}", "both {} {}", _all, strict=False, told=True),
    "OR": Form("{} OR {}", "either {} {}", _any, strict=False, told=True),
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column of the row at hand."""

    text: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.text,)

    def value(self, names: Names) -> Value:
        return names[self.text]

    def trace(self, names: Names) -> str:
        return f"{self.text}={literal(names[self.text])}"

    def told(self, level: str) -> str:
        """Its description at one of the levels of detail."""
        return self.text if level == "names" else ""


@dataclass(frozen=True)
class Aggregate:
    """An aggregate of a column, or of whole rows: ``COUNT(*)``."""

    function: str
    column: str

    @property
    def text(self) -> str:
        return f"{self.function}({self.column})"

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self.column == "*" else (self.column,)

    def value(self, names: Names) -> Value:
        return names[self.text]

    def trace(self, names: Names) -> str:
        return f"{self.text}={literal(names[self.text])}"

    def told(self, level: str) -> str:
        named = level == "names" and self.column != "*"
        return AGGREGATES[self.function] + (f" {self.column}" if named else "")

    def step(self, state: Any, names: Names) -> tuple[str, Value]:
        """What one more row makes of it, and how a trace tells that. NULL does not count."""
        value: Any = 1 if self.column == "*" else names[self.column]
        if value is None:
            return f"{self.text}={literal(state)}", state
        if self.function == "COUNT":
            value = 1
        elif state is None:
            return f"{self.text}={literal(value)}", value
        if self.function in ("COUNT", "SUM"):
            return f"{self.text}={state} + {value}; {state + value}", state + value
        new = (min if self.function == "MIN" else max)(state, value)
        return f"{self.text}={literal(state)}, {literal(value)}; {literal(new)}", new


AGGREGATES = {"COUNT": "count", "SUM": "total", "MIN": "smallest", "MAX": "biggest"}


@dataclass(frozen=True)
class Subquery:
    """A query in brackets, whose result is computed before the rows are read: one value, or a tuple for IN."""

    query: Any
    many: bool = False
    """Whether it gives a tuple of values."""

    @property
    def text(self) -> str:
        return f"({self.query.text})"

    @property
    def columns(self) -> tuple[str, ...]:
        return self.query.columns

    def value(self, names: Names) -> Any:
        return names[self.text]

    def trace(self, names: Names) -> str:
        value = names[self.text]
        return f"({', '.join(map(literal, value)) if self.many else literal(value)})"

    def told(self, level: str) -> str:
        return f"({self.query.told(level)})"


@dataclass(frozen=True)
class Constant:
    """A literal."""

    constant: Value
    columns: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return literal(self.constant)

    def value(self, names: Names) -> Value:
        return self.constant

    def trace(self, names: Names) -> str:
        return self.text

    def told(self, level: str) -> str:
        return "" if level == "vague" else self.text


@dataclass(frozen=True)
class Operation:
    """A `Form` with its arguments."""

    form: str
    arguments: tuple["Expression", ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for argument in self.arguments for name in argument.columns)

    @property
    def text(self) -> str:
        return FORMS[self.form].text.format(*(argument.text for argument in self.arguments))

    def value(self, names: Names) -> Any:
        values = [argument.value(names) for argument in self.arguments]
        form = FORMS[self.form]
        return None if form.strict and None in values else form.function(*values)

    def trace(self, names: Names) -> str:
        """The expression with values put in, and its result."""
        told = FORMS[self.form].told
        parts = [traced(argument, names) if told else argument.trace(names) for argument in self.arguments]
        return FORMS[self.form].text.format(*parts)

    def told(self, level: str) -> str:
        return FORMS[self.form].words.format(*(argument.told(level) for argument in self.arguments))


Expression = Column | Aggregate | Subquery | Constant | Operation


def traced(expression: Expression, names: Names) -> str:
    """The expression with values put in, and its result where something was calculated."""
    text = expression.trace(names)
    return f"{text}; {told_value(expression, names)}" if isinstance(expression, Operation) else text


def told_value(expression: Operation, names: Names) -> str:
    value = expression.value(names)
    return str(value) if isinstance(value, bool) else literal(value)


def subqueries(expression: Expression | None) -> Iterator[Subquery]:
    """The subqueries inside an expression, in reading order."""
    if isinstance(expression, Subquery):
        yield expression
    elif isinstance(expression, Operation):
        for argument in expression.arguments:
            yield from subqueries(argument)
