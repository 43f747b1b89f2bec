"""The generator's statements are real SQL, their results are SQLite's, and their traces tell what SQLite computes."""

import re
import sqlite3
from collections import Counter

import pytest
from experiments.tiny_base.sql.execution import Rejected, execute, trace_text
from experiments.tiny_base.sql.expressions import Column, Constant, Operation
from experiments.tiny_base.sql.grammar import random_plan, random_statement
from experiments.tiny_base.sql.samples import draw_sample, needed, smallest
from experiments.tiny_base.sql.statements import Item, Query, Statement
from experiments.tiny_base.sql.tables import NO_ROWS, Table, database_text, literal, rows_text
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp, parse_one

from populora.core.rng import stream
from populora.domains.sql import runner

VALUE = r"NULL|-?\d+|'\w*'"
TOLD = re.compile(r"(?:[a-z]|[A-Z]+\([a-z*]\))=(?=NULL|-?\d|')")
"""The name before a value that was put in."""
RESULT = rf"; (?:True|False|{VALUE})"


def connection_of(text: str) -> sqlite3.Connection:
    """A database from its text, without the code under test."""
    connection, name = sqlite3.connect(":memory:"), ""
    for line in text.split("\n"):
        if re.fullmatch(r"[tu]\([a-z](,[a-z])*\)", line):
            connection.execute(f"CREATE TABLE {line}")
            name = line[0]
        else:
            connection.execute(f"INSERT INTO {name} VALUES ({line})")  # noqa: S608
    return connection


def result_of(statement: str, database: str) -> list[str]:
    return [",".join(map(literal, row)) for row in connection_of(database).execute(statement)]


def computed(expression: str):
    """What SQLite makes of an expression of a trace, after names, results of parts and all but the values are taken out."""
    return sqlite3.connect(":memory:").execute(f"SELECT {re.sub(RESULT, '', TOLD.sub('', expression))}").fetchone()


def shown(value) -> str:
    return {1: "True", 0: "False", None: "NULL"}[value]


@given(seed=st.integers(0, 2**32), budget=st.integers(1, 8))
@settings(max_examples=100, deadline=None)
def test_every_statement_is_one_query_that_sqlglot_writes_in_the_same_way(seed, budget):
    text = random_statement(stream(seed, "test"), budget).text
    tree = parse_one(text, dialect="sqlite")
    assert isinstance(tree, exp.Query)
    assert tree.sql(dialect="sqlite").replace("NOT a IS NULL", "a IS NOT NULL") == text or " IS NOT NULL" in text


def test_all_parts_occur_and_a_budget_is_spent():
    plans = [random_plan(stream(0, "plans", index), 1 + index % 8) for index in range(400)]
    counts = Counter(part for plan in plans for part in plan)
    assert len(counts) == 13 and min(counts.values()) >= 10
    costs = {"join": 2, "subquery": 2, "union": 2, "with": 2}
    spent = [sum(costs.get(part, 1) for part in plan) == 1 + index % 8 for index, plan in enumerate(plans)]
    assert sum(spent) / len(spent) > 0.8, "a plan ends early only where nothing more fits"


@given(seed=st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_results_are_those_of_sqlite_whatever_the_order_of_the_rows(seed):
    sample = draw_sample(stream(seed, "results"), 1 + seed % 8)
    for database, run in zip(sample.databases, sample.runs, strict=True):
        rows = result_of(sample.source, database_text(database))
        turned = tuple(Table(table.name, table.columns, table.rows[::-1]) for table in reversed(database))
        again = result_of(sample.source, database_text(turned))
        expected = [] if rows_text(run.rows) == NO_ROWS else rows_text(run.rows).split("\n")
        if "ORDER BY" in sample.source:
            assert rows == again == expected and run.ordered
        else:
            assert Counter(rows) == Counter(again) == Counter(expected) and not run.ordered
            assert run.canonical == execute(sample.statement, turned).canonical


@given(seed=st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_the_runner_of_sql_accepts_every_statement_and_writes_the_same_texts(seed):
    sample = draw_sample(stream(seed, "runner"), 1 + seed % 8)
    call = runner.load(sample.source, ())
    for example in map(sample.example, range(len(sample.databases))):
        assert runner.write_inputs(runner.parse_inputs(example.inputs)) == example.inputs
        assert {runner.write_output(call(example.inputs, repetition)) for repetition in (0, 1)} == {example.output}


@given(seed=st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_what_a_trace_claims_is_what_sqlite_computes(seed):
    sample = draw_sample(stream(seed, "traces"), 1 + seed % 8)
    for run in sample.runs:
        for line in trace_text(run.steps).split("\n"):
            for test, truth in re.findall(r" (?:WHERE|ON|HAVING) (.*?); (True|False|NULL)(?= (?:WHERE|GROUP BY|SELECT) |$)", line):
                assert shown(computed(test)[0]) == truth
            for items, row in re.findall(r" SELECT (.*?)(?: ORDER BY .*?)? -> (.*)$", line):
                assert ",".join(map(literal, computed(items))) == row
            for old, new, total in re.findall(rf"(?:SUM|COUNT)\([a-z*]\)=(\d+) \+ (\d+); ({VALUE})", line):
                assert int(old) + int(new) == int(total)


def test_a_trace_in_full():
    t, u = Table("t", ("a", "s"), ((4, "b"), (None, "c"), (7, "b"))), Table("u", ("x", "r"), ((1, "b"),))
    where = Operation("AND", (Operation(">", (Column("a"), Constant(2))), Operation("=", (Column("x"), Constant(1)))))
    items = (Item(Operation("+", (Column("a"), Column("x")))), Item(Column("r")))
    query = Query(items, "t", ("u", Column("s"), Column("r")), where, order=((Column("a"), True),), limit=1)
    run = execute(Statement(query), (t, u))
    assert query.text == "SELECT a + x, r FROM t JOIN u ON s = r WHERE a > 2 AND x = 1 ORDER BY a DESC LIMIT 1"
    assert trace_text(run.steps).split("\n") == [
        "", "FROM t", "a=4,s='b'",
        "x=1,r='b' ON s='b' = r='b'; True WHERE a=4 > 2; True AND x=1 = 1; True; True SELECT a=4 + x=1; 5, r='b' ORDER BY a=4 -> 5,'b'",
        "a=NULL,s='c'", "x=1,r='b' ON s='c' = r='b'; False", "a=7,s='b'",
        "x=1,r='b' ON s='b' = r='b'; True WHERE a=7 > 2; True AND x=1 = 1; True; True SELECT a=7 + x=1; 8, r='b' ORDER BY a=7 -> 8,'b'",
        "ORDER BY 7; 4",
    ]  # fmt: skip
    assert rows_text(run.rows) == "8,'b'"


def test_an_order_that_depends_on_the_rows_and_values_out_of_range_are_rejected():
    t = Table("t", ("a", "b"), ((1, 5), (2, 5)))
    by_b = Query((Item(Column("a")),), "t", order=((Column("b"), False),))
    with pytest.raises(Rejected, match="order"):
        execute(Statement(by_b), (t,))
    with pytest.raises(Rejected, match="range"):
        execute(Statement(Query((Item(Operation("*", (Column("b"), Constant(9)))),), "t")), (t,))


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_the_smallest_database_gives_the_output_and_needs_all_its_rows(seed):
    sample = draw_sample(stream(seed, "smallest"), 1 + seed % 8)
    database, run = smallest(sample.statement, sample.databases[0], sample.runs[0])
    assert rows_text(run.canonical) == sample.example(0).output
    assert len(database_text(database)) <= len(database_text(needed(sample.statement, sample.databases[0])))
    wanted = Counter(result_of(sample.source, database_text(database)))
    assert wanted == Counter([] if sample.example(0).output == NO_ROWS else sample.example(0).output.split("\n"))


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_a_message_tells_less_at_each_level(seed):
    statement = random_statement(stream(seed, "message"), 1 + seed % 8)
    names, constants, vague = (statement.told(level) for level in ("names", "constants", "vague"))
    assert not re.search(r"\b[abcsxyrpq]\b", re.sub(r"'\w*'", "", constants)) and not re.search(r"\d|'", vague)
    assert len(vague) <= len(constants) <= len(names)
    assert "```" not in names and "\n" not in names and statement.text not in names
