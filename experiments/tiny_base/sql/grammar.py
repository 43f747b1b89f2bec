"""Random SQL statements: first a plan of parts that a budget pays for, then the statement that has them.

Nothing here is executed; ``samples.py`` does that and throws away what is constant, depends on the order of rows or leaves the ranges.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from experiments.tiny_base.sql.expressions import Aggregate, Column, Constant, Expression, Operation, Subquery
from experiments.tiny_base.sql.statements import Item, Query, Statement
from experiments.tiny_base.sql.tables import LETTERS, TEXTS

FIRST = (("a", "b"), ("a", "b"), ("a", "s"), ("a", "s"), ("b", "s"), ("a", "b", "c"), ("a", "b", "s"))
SECOND = (("x", "y"), ("x", "r"), ("x", "y", "r"))
"""Columns that the tables ``t`` and ``u`` may have."""
COSTS = {"join": 2, "subquery": 2, "union": 2, "with": 2}
"""What each part costs, where it is not 1."""
WEIGHTS = {
    "where": 20, "item": 12, "calculation": 13, "order": 12, "limit": 8, "distinct": 4, "aggregate": 12, "group": 10, "having": 6,
    "join": 12, "subquery": 8, "union": 5, "with": 5,
}  # fmt: skip
MOST = {"where": 3, "item": 2, "calculation": 2}
"""How often a part may occur, where it is not once."""
EXCLUDES = {
    "calculation": ("aggregate", "group"),
    "distinct": ("aggregate", "group"),
    "join": ("subquery", "union", "with"),
    "subquery": ("union", "with"),
    "union": ("order", "distinct", "aggregate", "group", "with"),
    "order": ("aggregate",),
}
"""Parts that do not occur together; each pair is listed once."""
NEEDS = {"limit": "order", "having": "group"}


@dataclass
class Scope:
    """What a query under construction may read."""

    rng: np.random.Generator
    names: tuple[str, ...]

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def number(self, low: int, high: int) -> Constant:
        return Constant(int(self.rng.integers(low, high + 1)))

    def letter(self) -> Constant:
        return Constant(self.pick(LETTERS))

    def ints(self) -> list[Column]:
        return [Column(name) for name in self.names if not _texty(name)]

    def texts(self) -> list[Column]:
        return [Column(name) for name in self.names if _texty(name)]

    def some(self, count: int) -> list[Column]:
        """So many different columns, or all."""
        return [Column(self.names[int(index)]) for index in self.rng.permutation(len(self.names))[:count]]


def random_plan(rng: np.random.Generator, budget: int) -> list[str]:
    """Parts of a statement, with repetitions, that cost the budget together."""
    parts: list[str] = []
    left = budget
    while True:
        options = [part for part in WEIGHTS if COSTS.get(part, 1) <= left and _fits(part, parts)]
        if not options:
            return parts
        weights = np.array([WEIGHTS[part] for part in options], dtype=float)
        part = options[int(rng.choice(len(options), p=weights / weights.sum()))]
        parts.append(part)
        left -= COSTS.get(part, 1)


def _fits(part: str, parts: list[str]) -> bool:
    excluded = any(part in EXCLUDES.get(other, ()) or other in EXCLUDES.get(part, ()) for other in parts)
    return parts.count(part) < MOST.get(part, 1) and not excluded and (part not in NEEDS or NEEDS[part] in parts)


def calculation(scope: Scope) -> Expression:
    """An operation on one or two columns."""
    ints, texts = scope.ints(), scope.texts()
    if texts and (not ints or scope.chance(0.4)):
        text = scope.pick(texts)
        forms = [Operation("||", (text, scope.letter())), Operation("||", (scope.letter(), text)), Operation("LENGTH", (text,))]
        forms += [Operation("UPPER", (text,)), Operation("||", tuple(texts[:2] if len(texts) > 1 else (text, text)))]
        return scope.pick(forms)
    left = scope.pick(ints)
    others = [column for column in ints if column != left]
    right = scope.pick(others) if others and scope.chance(0.45) else scope.number(1, 5)
    if scope.chance(0.15):
        return Operation("CASE", (condition(scope), left, scope.pick((right, scope.number(0, 5)))))
    other = {"*": scope.number(2, 3), "%": scope.number(2, 4)}
    form = scope.pick(("+", "+", "+", "-", "-", "*", "%", "ABS"))
    return Operation(form, (left, other.get(form, right)))


def condition(scope: Scope) -> Expression:
    """One comparison."""
    ints, texts = scope.ints(), scope.texts()
    if scope.chance(0.05):
        return Operation(scope.pick(("IS NULL", "IS NOT NULL")), (Column(scope.pick(scope.names)),))
    if texts and (not ints or scope.chance(0.35)):
        text = scope.pick(texts)
        forms = [Operation(form, (text, scope.letter())) for form in ("=", "<>", ">", "<")]
        forms += [Operation("=", (Operation("LENGTH", (text,)), scope.number(1, 2)))]
        forms += [Operation("IN", (text, *map(Constant, _pair(scope, tuple(LETTERS)))))]
        return scope.pick(forms)
    left = scope.pick(ints)
    others = [column for column in ints if column != left]
    if others and scope.chance(0.25):
        return Operation(scope.pick((">", "<", "=", "<>")), (left, scope.pick(others)))
    forms = [Operation(">", (left, scope.number(1, 6))), Operation("<", (left, scope.number(3, 8)))] * 3
    forms += [Operation("=", (Operation("%", (left, Constant(2))), scope.number(0, 1)))]
    forms += [Operation("=", (left, scope.number(0, 9))), Operation("<>", (left, scope.number(0, 9)))]
    low = int(scope.rng.integers(0, 5))
    forms += [Operation("BETWEEN", (left, Constant(low), Constant(low + int(scope.rng.integers(2, 6)))))]
    return scope.pick([*forms, Operation("IN", (left, *map(Constant, _pair(scope, tuple(range(10))))))])


def _pair(scope: Scope, values: tuple) -> list:
    return sorted(values[int(index)] for index in scope.rng.permutation(len(values))[:2])


def conditions(scope: Scope, count: int, first: list[Expression]) -> Expression | None:
    """So many comparisons and those given, all joined by AND or all by OR."""
    parts = [*first, *(condition(scope) for _ in range(count))]
    parts = [parts[int(index)] for index in scope.rng.permutation(len(parts))]
    form = "AND" if scope.chance(0.6) else "OR"
    return reduce(lambda left, right: Operation(form, (left, right)), parts) if parts else None


def random_statement(rng: np.random.Generator, budget: int) -> Statement:
    """A statement of this budget, with the tables that its databases have."""
    parts = random_plan(rng, budget)
    first = FIRST[int(rng.integers(len(FIRST)))]
    second = SECOND[int(rng.integers(len(SECOND)))]
    if "s" not in first:  # what meets in a join or a comparison has one type
        second = SECOND[0]
    schema = {"t": first} | ({"u": second} if {"join", "subquery", "union"} & set(parts) else {})
    if "with" in parts:
        named, names = _named(Scope(rng, first), parts)
        query = _query(Scope(rng, names), "v", parts, schema)
        return Statement(query, named, schema=schema)
    if "union" in parts:
        return _union(rng, parts, schema)
    return Statement(_query(Scope(rng, first), "t", parts, schema), schema=schema)


def _named(scope: Scope, parts: list[str]) -> tuple[Query, tuple[str, ...]]:
    """The query of a WITH clause, and the names of its columns. It takes half of the conditions, of which ``parts`` loses them."""
    count = sum(scope.chance(0.5) for part in parts if part == "where")
    for _ in range(count):
        parts.remove("where")
    plain = scope.some(2)
    computed = calculation(scope)
    alias = "q" if _is_text(computed) else "p"
    items = (*map(Item, plain[: int(scope.rng.integers(1, 3))]), Item(computed, alias))
    return Query(items, "t", where=conditions(scope, count, [])), tuple(item.name for item in items)


def _union(rng: np.random.Generator, parts: list[str], schema: dict[str, tuple[str, ...]]) -> Statement:
    """Two queries of one column each, or two columns each; the conditions are shared out."""
    left, right = Scope(rng, schema["t"]), Scope(rng, schema["u"])
    wanted = parts.count("where")
    here = int(rng.integers(0, wanted + 1))
    columns = _keys(left, schema)
    if "item" in parts and (others := [name for name in schema["t"] if name != columns[0].text]):
        pairs = [*zip(columns, map(Column, (left.pick(others), left.pick(schema["u"]))), strict=True)]
    else:
        pairs = [(column,) for column in columns]
    queries = [
        Query(tuple(map(Item, items)), table, where=conditions(scope, count, []))
        for items, scope, table, count in ((pairs[0], left, "t", here), (pairs[1], right, "u", wanted - here))
    ]
    if "calculation" in parts:
        items = (Item(calculation(left)), *queries[0].items[1:])
        queries[0] = replace(queries[0], items=items)
    return Statement(queries[0], union=queries[1], keep_all=left.chance(0.4), schema=schema)


def _query(scope: Scope, table: str, parts: list[str], schema: dict[str, tuple[str, ...]]) -> Query:
    """The outermost SELECT with all parts of the plan that concern it."""
    join = None
    if "join" in parts:
        join = ("u", *_keys(scope, schema))
        scope = Scope(scope.rng, (*schema["t"], *schema["u"]))
    inner = [_subquery(scope, schema["u"])] if "subquery" in parts else []
    where = conditions(scope, parts.count("where"), inner)
    if "aggregate" in parts or "group" in parts:
        return _grouped(scope, Query((), table, join, where), parts)
    items = [Item(column) for column in scope.some(1 + parts.count("item"))]
    for index in range(min(parts.count("calculation"), len(items))):
        items[index] = Item(calculation(scope))
    order = ()
    if "order" in parts:
        plain = [item.expression for item in items if isinstance(item.expression, Column)]
        order = _order(scope, plain or [items[0].expression] if "distinct" in parts else scope.some(2))
    return Query(tuple(items), table, join, where, order=order, limit=_limit(scope, parts), distinct="distinct" in parts)


def _grouped(scope: Scope, query: Query, parts: list[str]) -> Query:
    count = max(1, parts.count("aggregate") + parts.count("item"))
    group = scope.pick(scope.some(2)) if "group" in parts else None
    others = [name for name in scope.names if not group or name != group.text]
    aggregates = list(dict.fromkeys(_aggregate(scope, others) for _ in range(count)))
    having = None
    if "having" in parts:
        left = aggregates[0] if not _is_text(aggregates[0]) else Aggregate("COUNT", "*")
        high = 2 if left.function == "COUNT" else 8
        having = Operation(scope.pick((">", "<") if left.function != "COUNT" else (">", "=")), (left, scope.number(1, high)))
    items = tuple(map(Item, ([group] if group else []) + aggregates))
    order = _order(scope, [item.expression for item in items]) if "order" in parts else ()
    return replace(query, items=items, group=group, having=having, order=order, limit=_limit(scope, parts))


def _aggregate(scope: Scope, names: list[str]) -> Aggregate:
    if scope.chance(0.3) or not names:
        return Aggregate("COUNT", "*")
    name = scope.pick(names)
    return Aggregate(scope.pick(("MIN", "MAX", "COUNT") if name in (*TEXTS, "q") else ("SUM", "SUM", "MIN", "MAX")), name)


def _order(scope: Scope, keys: Sequence[Expression]) -> tuple[tuple[Expression, bool], ...]:
    """One or two of the keys, each upwards or downwards."""
    chosen = [keys[int(index)] for index in scope.rng.permutation(len(keys))[: 2 if scope.chance(0.25) else 1]]
    return tuple((key, scope.chance(0.45)) for key in chosen)


def _limit(scope: Scope, parts: list[str]) -> int:
    return int(scope.rng.integers(1, 3)) if "limit" in parts else 0


def _keys(scope: Scope, schema: dict[str, tuple[str, ...]]) -> tuple[Column, Column]:
    """A column of each table, of one type."""
    pairs = [(left, right) for left in schema["t"] for right in schema["u"] if (left in TEXTS) == (right in TEXTS)]
    left, right = scope.pick(pairs)
    return Column(left), Column(right)


def _subquery(scope: Scope, names: tuple[str, ...]) -> Expression:
    """A comparison with the one value, or with the values, that a query of the other table gives."""
    inner = Scope(scope.rng, names)
    pairs = [(left, right) for left in scope.names for right in names if _texty(left) == _texty(right)]
    left, right = map(Column, scope.pick(pairs))
    where = condition(inner) if scope.chance(0.3) else None
    if scope.chance(0.5):
        return Operation("IN query", (left, Subquery(Query((Item(right),), "u", where=where), many=True)))
    function = scope.pick(("MIN", "MAX"))
    return Operation(scope.pick((">", "<", "=")), (left, Subquery(Query((Item(Aggregate(function, right.text)),), "u", where=where))))


def _texty(name: str) -> bool:
    return name in (*TEXTS, "q")


def _is_text(expression: Expression) -> bool:
    """Whether its values are strings."""
    if isinstance(expression, Operation):
        return expression.form in ("||", "UPPER") or (expression.form == "CASE" and _is_text(expression.arguments[1]))
    if isinstance(expression, Aggregate):
        return expression.function != "COUNT" and _texty(expression.column)
    return isinstance(expression, Column) and _texty(expression.text)
