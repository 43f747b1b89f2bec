"""The hostile corpus of SQL against the runner in this process. The sandbox's part is tested with the sandbox."""

from collections import Counter

import pytest
import tests.domains.sql.corpus  # noqa: F401 - it adds the cases
from tests.domains.sql.corpus_case import CASES, Case, holds

from populora.domains.sql import REASONS, runner
from populora.domains.sql.runner import guard
from populora.sandbox.runner import Refused


def outcome(statement: str, database: str) -> tuple[str, str, str]:
    """Verdict kind, reason and text of a statement, as the sandbox's child finds them in two calls."""
    try:
        call = runner.load(statement, ())
        texts = [runner.write_output(call(database, repetition)) for repetition in (0, 1)]
    except Refused as refusal:
        return "error", str(refusal), ""
    except MemoryError:
        return "error", "memory", ""
    return ("ok", "", texts[0]) if texts[0] == texts[1] else ("rejected_nondeterministic", "", "")


def test_every_case_is_there_once():
    assert len(CASES) == 328  # docs/verifier.md
    assert max(Counter((case.tries, case.name) for case in CASES).values()) == 1


@pytest.mark.parametrize("case", CASES, ids=[f"{case.tries}: {case.name}" for case in CASES])
def test_a_case_gets_an_accepted_verdict(case: Case):
    kind, reason, text = outcome(case.statement, case.database)
    assert holds(case, kind, reason, text), (kind, reason, text[:200], case.accepted)
    assert reason in ("", "memory", *REASONS)


def test_without_the_authoriser_the_corpus_would_notice(monkeypatch):
    """The negative control: what SQLite does by itself is not what the corpus accepts."""
    names = "sqlite_master rowid sqlite_version date current_timestamp changes unlikely json zeroblob json_each dbstat".split()
    cases = [case for case in CASES if case.name in names and case.tries.startswith(("reads", "calls"))]
    assert len(cases) == len(names) and all(holds(case, *outcome(case.statement, case.database)) for case in cases)
    monkeypatch.setattr(guard, "_authoriser", lambda *_: (None, []))
    assert [case.name for case in cases if holds(case, *outcome(case.statement, case.database))] == []
