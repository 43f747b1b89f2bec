"""The bounds of a job: its runs share their steps, slow statements end without a clock, and rows may be longer than texts."""

import pytest
import tests.domains.sql.corpus  # noqa: F401 - it adds the cases
from tests.domains.sql.corpus_case import CASES
from tests.domains.sql.test_sql_corpus import outcome

from populora.core.types import VerdictKind
from populora.domains.registry import runners_of
from populora.domains.sql import runner
from populora.domains.sql.runner.guard import MAX_STEPS
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import Job, Limits
from populora.sandbox.runner import Refused

SLOW = ("takes long", "multiplies", "never ends", "compares", "fills", "doubles", "nests")
NUMBERS = "n(i)\n" + "\n".join(map(str, range(105)))
REPLACES = "SELECT count(*), max(y.i) FROM t x, n y, n z WHERE length(replace(replace(x.b || y.i || z.i, 'a', 'c'), 'b', 'a')) < 5000"
COUNTS = "WITH c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {}) SELECT max(i) FROM c"


def six_of(database: str) -> tuple[str, ...]:
    return tuple(f"{database}\nextra(number)\n{number}" for number in range(6))


@pytest.mark.slow
def test_no_clock_is_needed_to_end_what_is_slow_on_six_databases():
    cases = [(case.statement, case.database) for case in CASES if case.tries.startswith(SLOW)]
    cases.append((REPLACES, f"t(b)\n'{'ab' * 240}'\n{NUMBERS}"))
    far = 10.0  # seconds; the slowest case takes 0.3 on a Xeon of 2.5 GHz, and several times that on a busy or old processor
    with SandboxPool(Limits(cpu_seconds=far, wall_seconds=6 * far, memory_mb=512, runners=runners_of(["sql"])), 1, allow_weak=True) as pool:
        verdicts = pool.run([Job("run", text, six_of(database), domain="sql") for text, database in cases], twice=True)
    assert len(cases) > 40 and VerdictKind.TIMEOUT not in {verdict.kind for verdict in verdicts}
    assert verdicts[-1].reason == "too_many_steps"


def test_all_runs_of_a_job_share_its_steps():
    third = COUNTS.format(MAX_STEPS // 50)
    assert outcome(COUNTS.format(MAX_STEPS // 250), "t(a)")[0] == "ok"
    call = runner.load(third, ())
    assert call("t(a)", 0) == call("t(a)", 0) == [(MAX_STEPS // 50,)]
    for repetition in (1, 0):
        with pytest.raises(Refused, match="too_many_steps"):
            call("t(a)", repetition)
    assert runner.load(third, ())("t(a)", 0) == [(MAX_STEPS // 50,)]


@pytest.mark.parametrize("rest", ["ORDER BY 1", "GROUP BY a, b, c", "ORDER BY a, b, c"])
def test_rows_that_are_sorted_or_grouped_may_be_longer_than_a_text(rest):
    rows = [",".join(f"'{letter * 381}'" for letter in letters) for letters in ("abc", "bca")]
    database = "\n".join(["t(a,b,c)", *rows])
    assert outcome(f"SELECT DISTINCT a, b, c FROM t {rest}", database) == ("ok", "", "\n".join(rows))  # noqa: S608 - ours


def test_a_row_beyond_the_bound_and_a_text_beyond_it_have_a_name():
    row = ",".join(["'" + "a" * 900 + "'"] * 5)
    assert outcome("SELECT DISTINCT a, b, c, d, e FROM t", f"t(a,b,c,d,e)\n{row}") == ("error", "value_too_long", "")
    assert outcome("SELECT a || a FROM t", f"t(a)\n'{'a' * 501}'") == ("error", "value_too_long", "")
    assert outcome("SELECT length(a || a) FROM t", f"t(a)\n'{'a' * 501}'") == ("ok", "", "1002")


def test_a_long_statement_may_have_characters_of_four_bytes():
    statement = "SELECT " + " + ".join(["length('" + "\U0001f600" * 230 + "')"] * 80) + " AS n"  # the name of a column counts as a text
    assert 19_000 < len(statement) <= 20_000 and outcome(statement, "t(a)") == ("ok", "", "18400")
