"""The runner of SQL inside the sandbox: values, databases and measures. The hostile corpus is in test_sql_corpus_tiers.py."""

import pytest

from populora.core.errors import SandboxUnavailableError
from populora.core.types import VerdictKind
from populora.domains.registry import runners_of
from populora.sandbox.layers import isolation
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import Job, Limits

ROWS = "t(a,b)\n1,'x'\n2,NULL\n3,'y'"


@pytest.fixture(scope="module", params=["full", "standard"])
def pool(request):
    try:
        isolation(tier=request.param)
    except SandboxUnavailableError as error:
        pytest.skip(str(error))
    with SandboxPool(Limits(runners=runners_of(["sql"])), 1, tier=request.param) as pool:
        yield pool


def run(pool, program, *inputs):
    return pool.run([Job("run", program, inputs, domain="sql")], twice=True)[0]


def test_results_match_as_multisets_unless_the_statement_orders(pool):
    (answer,) = pool.run([Job("parse", texts=("3\n1\n2",), domain="sql")])[0].values
    unordered, ordered, other = (
        run(pool, f"SELECT a {clause}", ROWS).values[0] for clause in ("FROM t", "FROM t ORDER BY a", "+ 0.0 FROM t ORDER BY a = 2, a = 1")
    )
    assert [value.literal for value in (answer, unordered, ordered, other)] == ["3\n1\n2", "1\n2\n3", "1\n2\n3", "3.0\n1.0\n2.0"]
    assert set(answer.comparables) & set(unordered.comparables) and answer.comparable == other.comparable != ordered.comparable


def test_a_long_text_of_characters_of_four_bytes_comes_back_whole(pool):
    database = "\n".join(["t(a)", *(f"'{chr(0x1F600 + row) * 240}'" for row in range(40))])
    (verdict,) = pool.run([Job("parse", texts=(database,), as_inputs=True, domain="sql")])
    assert verdict.ok and verdict.values[0].literal == database


def test_databases_come_back_in_their_canonical_text(pool):
    (verdict,) = pool.run([Job("parse", texts=("t( a,b integer )\n 'x' ,1",), as_inputs=True, domain="sql")])
    assert verdict.values[0].literal == "t(a,b INTEGER)\n'x',1"


def test_one_statement_runs_on_several_databases(pool):
    verdict = run(pool, "SELECT sum(a) FROM t", ROWS, "t(a)\n5")
    assert [value.literal for value in verdict.values] == ["6", "5"]


def test_measures_and_fingerprints_come_from_the_statement(pool):
    first, second, third = pool.run(
        [Job("measure", text, domain="sql") for text in ("SELECT a FROM t", "select A\nfrom t;", "DROP TABLE t")]
    )
    assert first.measures == second.measures and first.kind is VerdictKind.OK
    assert third.kind is VerdictKind.ERROR and third.reason == "not_one_select"
