"""The hostile corpus of SQL in the sandbox, in every tier that models may train on. The runners of Python and SQL are loaded together."""

from dataclasses import replace

import pytest
import tests.domains.sql.corpus  # noqa: F401 - it adds the cases
from tests.domains.sql.corpus_case import CASES, Case, holds

from populora.core.errors import SandboxUnavailableError
from populora.core.types import VerdictKind
from populora.domains.registry import runners_of
from populora.domains.sql import REASONS
from populora.sandbox.layers import isolation
from populora.sandbox.pool import SandboxPool
from populora.sandbox.process import Zygote
from populora.sandbox.protocol import Job, Limits, Verdict

LIMITS = Limits(cpu_seconds=2.0, wall_seconds=5.0, memory_mb=512, runners=runners_of(["python", "sql"]))
CONTROL = Job("run", "SELECT a FROM t WHERE a > 1", ("t(a)\n1\n2",), domain="sql")
PYTHON_CONTROL = Job("run", "def f(x):\n    return x + 1", ("41",))
GROUPS = list(dict.fromkeys(case.tries for case in CASES))


@pytest.fixture(scope="module", params=["full", pytest.param("standard", marks=pytest.mark.thorough)])
def judged(request) -> dict[Case | str, Verdict]:
    """The verdict of every case by the case, and those of a statement and a program that came after all of them."""
    try:
        isolation(tier=request.param)
    except SandboxUnavailableError as error:
        pytest.skip(str(error))
    with SandboxPool(LIMITS, 2, tier=request.param) as pool:
        jobs = [Job("run", case.statement, (case.database,), domain="sql") for case in CASES]
        verdicts: dict[Case | str, Verdict] = dict(zip(CASES, pool.run(jobs, twice=True), strict=True))
        verdicts["sql"], verdicts["python"] = pool.run([CONTROL, PYTHON_CONTROL], twice=True)
        return verdicts


@pytest.mark.parametrize("group", GROUPS)
def test_every_case_of_a_group_gets_an_accepted_verdict(judged, group):
    verdicts = {case: judged[case] for case in CASES if case.tries == group}
    texts = {case: verdict.values[0].literal if verdict.ok else "" for case, verdict in verdicts.items()}
    wrong = [(case.name, verdict) for case, verdict in verdicts.items() if not holds(case, verdict.kind, verdict.reason, texts[case])]
    assert verdicts and not wrong


def test_no_case_fails_by_a_limit_of_the_sandbox_or_in_a_way_that_has_no_name(judged):
    """The guard decides by steps, lengths and memory. The sandbox around it has nothing to do."""
    ends = {(verdict.kind, verdict.reason) for verdict in judged.values()}
    assert {kind for kind, _ in ends} <= {VerdictKind.OK, VerdictKind.ERROR, VerdictKind.REJECTED_NONDETERMINISTIC}
    assert {reason for kind, reason in ends if kind is VerdictKind.ERROR} <= {*REASONS, "memory", "output_limit"}


@pytest.mark.thorough
def test_statements_that_share_a_process_have_the_verdicts_that_they_have_alone(monkeypatch):
    submit, children = Zygote.submit, []
    monkeypatch.setattr(Zygote, "submit", lambda zygote, request: children.append(request) or submit(zygote, request))
    jobs = [Job("run", case.statement, (case.database,), domain="sql") for case in CASES]
    verdicts, counts = [], []
    for contained in (True, False):
        runners = tuple(replace(runner, contained=contained) for runner in LIMITS.runners)
        with SandboxPool(replace(LIMITS, cpu_seconds=60.0, wall_seconds=120.0, runners=runners), 2) as pool:
            children.clear()
            verdicts.append(pool.run(jobs, twice=True))
            counts.append(len(children))
    assert verdicts[0] == verdicts[1] and counts[0] < counts[1] / 4


def test_after_the_corpus_both_languages_still_have_their_results(judged):
    assert [judged[name].values[0].literal for name in ("sql", "python")] == ["2", "42"]
