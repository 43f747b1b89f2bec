"""SQL statements as trees, and random ones: what the tiny base learns to read, run and write.

A statement is grown from a *budget* of 1 to 8: each clause, column, condition and calculation costs 1, a second query or table 2.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from experiments.tiny_base.sql.expressions import Aggregate, Column, Expression, subqueries


@dataclass(frozen=True)
class Item:
    """One column of a result."""

    expression: Expression
    alias: str = ""

    @property
    def text(self) -> str:
        return self.expression.text + (f" AS {self.alias}" if self.alias else "")

    @property
    def name(self) -> str:
        return self.alias or self.expression.text


@dataclass(frozen=True)
class Query:
    """One SELECT. ``join`` is (table, column of the first table, column of this one); ``order`` holds keys and whether they descend."""

    items: tuple[Item, ...]
    table: str
    join: tuple[str, Column, Column] | None = None
    where: Expression | None = None
    group: Column | None = None
    having: Expression | None = None
    order: tuple[tuple[Expression, bool], ...] = ()
    limit: int = 0
    distinct: bool = False

    @property
    def text(self) -> str:
        parts = [f"SELECT {'DISTINCT ' * self.distinct}{', '.join(item.text for item in self.items)} FROM {self.table}"]  # noqa: S608 - made here, to be read
        if self.join:
            parts.append(f"JOIN {self.join[0]} ON {self.join[1].text} = {self.join[2].text}")
        if self.where:
            parts.append(f"WHERE {self.where.text}")
        if self.group:
            parts.append(f"GROUP BY {self.group.text}")
        if self.having:
            parts.append(f"HAVING {self.having.text}")
        if self.order:
            parts.append("ORDER BY " + ", ".join(key.text + " DESC" * down for key, down in self.order))
        if self.limit:
            parts.append(f"LIMIT {self.limit}")
        return " ".join(parts)

    @property
    def expressions(self) -> Iterator[Expression]:
        yield from (item.expression for item in self.items)
        yield from (part for part in (*(self.join or ())[1:], self.where, self.group, self.having) if part)
        yield from (key for key, _ in self.order)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that it reads, those of its subqueries too."""
        return tuple(name for expression in self.expressions for name in expression.columns)

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """The aggregates that it computes, each once."""
        found = [part for part in self.expressions for part in (part, *getattr(part, "arguments", ())) if isinstance(part, Aggregate)]
        return tuple(dict.fromkeys(found))

    def told(self, level: str) -> str:
        """What it does, in words, at one of the levels of detail."""
        parts = ["give", "set" * self.distinct, " pair ".join(item.expression.told(level) for item in self.items)]
        clauses = [" ".join(part for part in parts if part)]
        if self.join:
            clauses.append(f"join {self.join[1].told(level)} {self.join[2].told(level)}")
        if self.where:
            clauses.append(f"keep {self.where.told(level)}")
        if self.group:
            clauses.append(f"each {self.group.told(level)}")
        if self.having:
            clauses.append(f"filter {self.having.told(level)}")
        if self.order:
            clauses.append("sort " + " then ".join(key.told(level) + " reverse" * down for key, down in self.order))
        if self.limit:
            clauses.append("cut" if level == "vague" else f"cut {self.limit}")
        return "; ".join(" ".join(clause.split()) for clause in clauses)


@dataclass(frozen=True)
class Statement:
    """A whole statement. ``named`` is the query of a WITH clause, called ``v``; ``union`` a second query whose rows are added."""

    query: Query
    named: Query | None = None
    union: Query | None = None
    keep_all: bool = False
    """UNION ALL instead of UNION."""
    schema: dict[str, tuple[str, ...]] = field(default_factory=dict, compare=False)
    """Columns of the tables that its databases have."""

    @property
    def text(self) -> str:
        text = self.query.text
        if self.named:
            text = f"WITH v AS ({self.named.text}) {text}"
        return f"{text} UNION {'ALL ' * self.keep_all}{self.union.text}" if self.union else text

    @property
    def queries(self) -> tuple[Query, ...]:
        """All queries, each after those that it reads."""
        outer = [query for query in (self.named, self.query, self.union) if query]
        return tuple(part for query in outer for part in (*(inner.query for inner in subqueries(query.where)), query))

    @property
    def used(self) -> dict[str, tuple[str, ...]]:
        """The tables that it reads, with the columns that it needs of each: the first one where it needs none by name."""
        read = {name for query in self.queries for name in (query.table, *(query.join or ())[:1])} - {"v"}
        names = {name for query in self.queries for name in query.columns}
        kept = {table: tuple(name for name in columns if name in names) or columns[:1] for table, columns in self.schema.items()}
        return {table: columns for table, columns in kept.items() if table in read}

    def told(self, level: str) -> str:
        """The message that describes it, at one of the levels of detail."""
        text = self.query.told(level)
        if self.named:
            text = f"helper ({self.named.told(level)}); {text}"
        return f"{text}; {'append' if self.keep_all else 'put'} ({self.union.told(level)})" if self.union else text
