"""The order of rows: where it belongs to the result, and where a result must not depend on it."""

from itertools import permutations
from random import Random

import pytest
from tests.domains.sql.corpus_case import ROWS
from tests.domains.sql.test_sql_corpus import outcome
from tests.domains.sql.test_sql_results import expected_rows

from populora.domains.sql import runner
from populora.sandbox.runner import Multiset


@pytest.mark.parametrize(
    ("statement", "ordered"),
    [
        ("SELECT a FROM t ORDER BY a", True), ("SELECT a FROM t UNION SELECT a FROM t ORDER BY 1", True),
        ("WITH s AS (SELECT a FROM t) SELECT a FROM s ORDER BY a", True), ("SELECT a FROM t", False),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a)", False), ("SELECT a, rank() OVER (ORDER BY a) FROM t", False),
        ("WITH s AS (SELECT a FROM t ORDER BY a) SELECT a FROM s", False),
        ("SELECT a FROM t WHERE a IN (SELECT a FROM t ORDER BY a)", False),
        ("SELECT a AS \"order\" FROM t", False), ("SELECT 'order by' FROM t -- order by a", False),
    ],
)  # fmt: skip
def test_only_the_outermost_order_by_makes_a_sequence(statement, ordered):
    result = runner.load(statement, ())(ROWS, 0)
    assert isinstance(result, Multiset) is not ordered and len(result) == 3


@pytest.mark.parametrize("statement", ["SELECT a FROM t WHERE a = 1", "SELECT count(*) FROM t", "SELECT a FROM t WHERE a > 9"])
def test_at_most_one_row_is_a_sequence(statement):
    assert type(runner.load(statement, ())(ROWS, 0)) is list


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT a FROM t LIMIT 1",
        "SELECT a FROM t LIMIT 1 OFFSET 1",
        "SELECT group_concat(b) FROM t",
        "SELECT a FROM t ORDER BY b IS NULL LIMIT 1",
    ],
)
def test_a_result_that_depends_on_the_physical_order_differs_at_the_second_call(statement):
    call = runner.load(statement, ())
    assert runner.write_output(call(ROWS, 0)) == runner.write_output(call(ROWS, 2)) != runner.write_output(call(ROWS, 1))


CHANCE = (
    "SELECT a FROM t LIMIT 1", "SELECT b FROM t LIMIT 2 OFFSET 1", "SELECT group_concat(a) FROM t", "SELECT a FROM t ORDER BY b",
    "SELECT a, b FROM t ORDER BY b LIMIT 2", "SELECT a, b FROM t GROUP BY b", "SELECT a, max(b) FROM t", "SELECT DISTINCT b FROM t LIMIT 1",
    "SELECT a, row_number() OVER (ORDER BY b) FROM t", "SELECT b, group_concat(a) FROM t GROUP BY b", "SELECT (SELECT a FROM t) + b FROM t",
    "SELECT avg(a) FROM (SELECT a FROM t ORDER BY b LIMIT 2)", "SELECT a FROM t WHERE b > (SELECT b FROM t LIMIT 1)",
)  # fmt: skip


def test_the_second_call_notices_what_all_permutations_of_the_rows_would():
    """Brute force is the oracle: no false alarm, and few misses, which values that are equal by chance cause."""
    random = Random(0)  # noqa: S311 - no secret
    dependent = missed = 0
    for statement in CHANCE * 30:
        rows = [f"{random.randint(0, 4)},{random.randint(0, 2)}" for _ in range(random.randint(2, 4))]
        results = [expected_rows(statement, "\n".join(["t(a,b)", *order])) or [] for order in permutations(rows)]
        depends = len({repr(part if "ORDER BY b" in statement[-20:] else sorted(part)) for part in results}) > 1
        noticed = outcome(statement, "\n".join(["t(a,b)", *rows]))[0] == "rejected_nondeterministic"
        assert depends or not noticed
        dependent, missed = dependent + depends, missed + (depends and not noticed)
    assert dependent > 200 and missed <= dependent / 100


def test_a_sum_of_reals_does_not_depend_on_the_order_of_rows():
    database = "t(a)\n0.1\n0.2\n0.3\n1e-3\n7.7"
    assert outcome("SELECT sum(a), avg(a), total(a) FROM t", database) == ("ok", "", "8.301,1.6602,8.301")
