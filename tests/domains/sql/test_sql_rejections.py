"""Bad input of SQL through the verifier of training: every rejection has its name, in proposals and in answers."""

import pytest
from tests.domains.sql.corpus_case import NUMBERS

from populora.core.config import TasksConfig
from populora.core.types import Example, Generation, Problem, task_types
from populora.domains.registry import runners_of
from populora.domains.sql import REASONS
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import Limits
from populora.tasks.attempts import SolveRequest
from populora.tasks.proposals import ProposalRequest
from populora.tasks.render import load_prompts
from populora.tasks.verifier import TaskVerifier

I, O, F = task_types(["sql"])
ROWS = "t(a,b)\n1,'x'\n2,NULL\n3,'y'"
DATABASES = [ROWS, "t(a,b)\n5,'z'", "t(a,b)\n0,NULL\n9,'x'", "t(a,b)"]
ALL = "SELECT a, b FROM t"
SOURCE = Problem("source", O, ALL, (Example(ROWS, "1,'x'\n2,NULL\n3,'y'"),))

STATEMENTS = {
    "not_one_select": ["DELETE FROM t", "SELECT a FROM t; SELECT b FROM t", "VALUES (1)", "EXPLAIN SELECT a FROM t"],
    "unparsable_statement": ["SELECT a FROM", "SELECT 'a FROM t", "SELECT (a FROM t", "SELECT a FROM t WHERE a ! 1"],
    "forbidden_construct": ["SELECT random()", "SELECT date('now')", "SELECT sql FROM sqlite_master", "SELECT ?", "SELECT rowid FROM t"],
    "unknown_name": ["SELECT c FROM t", "SELECT a FROM u", 'SELECT "c" FROM t', "SELECT t.c FROM t"],
    "statement_error": ["SELECT a FROM t GROUP BY sum(a)", "SELECT a FROM t UNION SELECT a, b FROM t", "SELECT sum(sum(a)) FROM t"],
    "too_many_steps": ["WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"],
    "too_many_rows": ["WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 2000) SELECT i FROM n"],
    "value_too_long": ["SELECT hex(hex(hex(hex(hex(hex(hex(hex('abcd'))))))))", f"SELECT '{'x' * 1001}'", f"SELECT '{'x' * 4001}' = 1"],
    "unsupported_value": ["SELECT x'00'", "SELECT 9e999", "SELECT 1.7976931348623157e308", "SELECT char(10) FROM t"],
}
INPUTS = {
    "malformed_database": ["", "1,2", "t", "t()", "t(a,b)\n1", "t(a,A)", "t(a)\nx", "sqlite_t(a)", "t(a)\nt(b)", "t(a BLOB)", "t(a)\n'x"],
    "value_coerced": ["t(a,b)\n9223372036854775808,1", "t(a,b TEXT)\n1,2", "t(a INTEGER,b)\n'7',1", "t(a REAL,b)\n1,1"],
    "value_too_long": [f"t(a,b)\n1,'{'x' * 1001}'", "t(a,b)\n1,'" + "\u00e9" * 501 + "'"],
    "unsupported_value": ["t(a,b)\nx'00',1", "t(a,b)\n1e999,1"],
}
OUTPUTS = {
    "error:malformed_table": ["", "a,b", "1,'x'\n2", "1 2", "no row", "1,", "1,'x"],
    "error:value_coerced": ["1,'x'\n2,9223372036854775808\n3,'y'"],
    "error:value_too_long": [f"1,'{'x' * 1001}'"],
    "error:unsupported_value": ["x'00',1", "1,'x'\n2,1e999\n3,'y'"],
    "wrong_width": ["1\n2\n3", "1,'x',0\n2,NULL,0\n3,'y',0", "'1,x'\n'2,NULL'\n'3,y'"],
    "wrong": ["1,'x'\n2,NULL", "1,'x'\n2,NULL\n3,'y'\n3,'y'", "1,'x'\n2,'NULL'\n3,'y'", "1,'x'\n2,0\n3,'y'", "no rows"],
    "": ["1,'x'\n2,NULL\n3,'y'", "3,'y'\n1,'x'\n2,NULL", " 1.0 , 'x'\n\n2,null\n+3,'y'"],
}


def pairs(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(reason, text) for reason, texts in table.items() for text in texts]


@pytest.fixture(scope="module")
def pool():
    with SandboxPool(Limits(max_output_chars=400, runners=runners_of(["sql"])), 1, allow_weak=True) as started:
        yield started


@pytest.fixture(scope="module")
def verifier(pool) -> TaskVerifier:
    return TaskVerifier(pool, {"sql": load_prompts("compact", domain="sql")}, TasksConfig(), seed=0)


def generation(*fences: tuple[str, str]) -> Generation:
    answer = "\n".join(f"```{tag}\n{text}\n```" for tag, text in fences)
    return Generation(f"so</think><answer>{answer}</answer>", (), (), (), 0.0)


def rejections(verifier: TaskVerifier, task, *responses: Generation, program: str = ALL) -> list[str]:
    source = Problem("source", O, program, (Example(ROWS, "no rows"),))
    request = ProposalRequest("", 0, len(responses), (), "T0", task, 0, 1, "p", source)
    return [proposal.rejection for proposal in verifier.validate([(request, responses)])[0]]


def reasons(verifier: TaskVerifier, problem: Problem, *responses: Generation) -> list[str]:
    attempts = verifier.judge([(SolveRequest("", 0, len(responses), (), "S0", problem), responses)])[0]
    assert all(attempt.correct == (attempt.reason == "") and not attempt.void for attempt in attempts)
    return [attempt.reason for attempt in attempts]


def test_every_declared_reason_has_an_example_here():
    assert {*STATEMENTS, *INPUTS, *(reason.removeprefix("error:") for reason in OUTPUTS)} >= set(REASONS)


def test_a_proposed_statement_that_cannot_or_may_not_run_is_rejected_by_name(verifier):
    cases = pairs(STATEMENTS)
    responses = [generation(("sql", statement), ("input", ROWS)) for _, statement in cases]
    for task in (I, O):
        assert rejections(verifier, task, *responses) == [f"error:{reason}" for reason, _ in cases]


def test_a_proposed_database_that_is_none_is_rejected_by_name(verifier):
    cases = [case for case in pairs(INPUTS) if case[1]]
    responses = [generation(("sql", ALL), ("input", text)) for _, text in cases]
    assert rejections(verifier, O, *responses, generation(("sql", ALL), ("input", ""))) == [
        *(f"error:{name}" for name, _ in cases),
        "no_input",
    ]
    of_program = [generation(*(("input", other) for other in DATABASES[:3]), ("input", text), ("message", "rows")) for _, text in cases]
    assert rejections(verifier, F, *of_program) == [f"error:{name}" for name, _ in cases]


def test_a_proposal_whose_results_teach_nothing_is_rejected_by_name(verifier):
    described = [generation(*(("input", text) for text in texts), ("message", "rows")) for texts in (DATABASES, [ROWS, *DATABASES[:3]])]
    assert rejections(verifier, F, *described) == ["", "duplicate_inputs"]
    assert rejections(verifier, F, described[0], program="SELECT 1") == ["constant_outputs"]
    tie = generation(("sql", "SELECT a FROM t ORDER BY a % 2 LIMIT 1"), ("input", "t(a)\n1\n3"))
    long = generation(("sql", "SELECT x.a, y.a, z.a FROM t x, t y, t z WHERE x.a < 8 AND y.a < 8 AND z.a = 7"), ("input", NUMBERS))
    assert rejections(verifier, O, tie, long) == ["rejected_nondeterministic:calls_differ", "error:output_limit"]


def test_an_answered_database_that_is_none_is_wrong_by_name(verifier):
    cases = pairs(INPUTS)
    problem = Problem("p", I, ALL, SOURCE.shown)
    assert reasons(verifier, problem, *(generation(("input", text)) for _, text in cases)) == [f"error:{reason}" for reason, _ in cases]
    other = [generation(("input", text)) for text in ("t(b,a)\n'y',3\n'x',1\nNULL,2", "t(a,b)\n1,'x'", "u(a,b)\n1,'x'", "t(a)\n1")]
    assert reasons(verifier, problem, *other) == ["", "wrong", "error:unknown_name", "error:unknown_name"]


def test_an_answered_result_is_named_by_what_is_wrong_with_it(verifier):
    cases = [case for case in pairs(OUTPUTS) if case[1]]
    assert reasons(verifier, SOURCE, *(generation(("output", text)) for _, text in cases)) == [reason for reason, _ in cases]
    assert reasons(verifier, SOURCE, generation(("output", "")), generation(("input", ROWS))) == ["no_answer", "no_answer"]


def test_an_answered_statement_that_cannot_or_may_not_run_is_wrong_by_name(verifier):
    pair = SOURCE.shown[0]
    problem = Problem("p", F, ALL, (pair,), (pair,), "all rows")
    cases = pairs(STATEMENTS)
    assert reasons(verifier, problem, *(generation(("sql", text)) for _, text in cases)) == [f"error:{reason}" for reason, _ in cases]
    others = ["SELECT a FROM t", "SELECT * FROM t WHERE a < 3", "SELECT b, a FROM t", "SELECT * FROM t", "SELECT * FROM t ORDER BY a DESC"]
    assert reasons(verifier, problem, *(generation(("sql", text)) for text in others)) == ["wrong_width", "wrong", "wrong", "", ""]


def test_a_result_in_order_is_wrong_in_another(verifier):
    ordered = Problem("p", O, f"{ALL} ORDER BY a DESC", (Example(ROWS, "3,'y'\n2,NULL\n1,'x'"),))
    answers = [generation(("output", text)) for text in ("3,'y'\n2,NULL\n1,'x'", "1,'x'\n2,NULL\n3,'y'")]
    assert reasons(verifier, ordered, *answers) == ["", "wrong"]
