"""A case of the hostile corpus of SQL, and when a verdict is accepted.

A verdict is ``error REASON``, ``ok TEXT`` with the result's exact text, or ``rejected_nondeterministic``.
"""

from dataclasses import dataclass

ROWS = "t(a,b)\n1,'x'\n2,NULL\n3,'y'"
"""The database of a case that names none."""
PAIRS = "t(k,v)\n'p',1\n'p',2\n'q',2\n'q',1"
NUMBERS = "t(a)\n" + "\n".join(map(str, range(60)))
WIDE = "t(a)\n" + "\n".join(f"'{'ab' * 200}{number}'" for number in range(20))
LONG = f"t(a)\n'{'a' * 900}'\nn(i)\n" + "\n".join(map(str, range(900)))


@dataclass(frozen=True)
class Case:
    """One statement on one database, and what may come of it."""

    name: str
    tries: str
    statement: str
    database: str
    accepted: tuple[str, ...]


CASES: list[Case] = []


def statements(tries: str, texts: dict[str, str], *accepted: str, database: str = ROWS) -> None:
    """Add a case for each statement."""
    CASES.extend(Case(name, tries, text, database, accepted) for name, text in texts.items())


def databases(tries: str, texts: dict[str, str], *accepted: str, statement: str = "SELECT 1") -> None:
    """Add a case for each database."""
    CASES.extend(Case(name, tries, statement, text, accepted) for name, text in texts.items())


def results(tries: str, texts: dict[str, tuple[str, str]], database: str = ROWS) -> None:
    """Add a case for each statement with its one accepted verdict."""
    CASES.extend(Case(name, tries, text, database, (verdict,)) for name, (text, verdict) in texts.items())


def holds(case: Case, kind: str, reason: str, text: str) -> bool:
    """Return True if a verdict is accepted: its kind, its reason, and the text of the result where the kind is ok."""
    detail = {"ok": f" {text}", "error": f" {reason}"}.get(kind, "")
    return f"{kind}{detail}" in case.accepted


REFUSED, NO_SELECT, UNREAD = "error forbidden_construct", "error not_one_select", "error unparsable_statement"
LENGTH = "error value_too_long"
NO_NAME, FAILED, STEPS = "error unknown_name", "error statement_error", "error too_many_steps"
VALUE, MALFORMED, CHANCE = "error unsupported_value", "error malformed_database", "rejected_nondeterministic"
MEMORY = "error memory"
COUNT = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n{}) "
