"""What the acceptance tests ask of the programs of each language."""

import re
from collections.abc import Callable
from dataclasses import dataclass


def code_lines(program: str) -> int:
    return sum(bool(line.strip()) for line in program.splitlines())


def sql_clauses(statement: str) -> int:
    """As `populora.domains.sql` counts clauses, by their words alone."""
    words = r"\b(?:WHERE|GROUP BY|HAVING|ORDER BY|LIMIT|DISTINCT|UNION|AND|OR|CASE)\b"
    return len(re.findall(words, statement)) - statement.count(" BETWEEN ")


@dataclass(frozen=True)
class Subject:
    """A language. Programs of a model are never parsed in this process, so all is seen from their text."""

    constructs: dict[str, str]
    """How the text of a program shows that it uses each."""
    fence: str
    unit: tuple[str, str]
    """What the size of a program is counted in, and its plural."""
    size: Callable[[str], int]
    """The size of a program from its text: it must also fit one that is invalid."""
    valid: float
    solve_rates: tuple[float, float]


SUBJECTS = {
    "python": Subject(
        {
            "helper function": r"^def (?!f\()", "branch": r"^ +(if|elif) ", "loop": r"^ +(for|while) ",
            "comprehension": r"[\[(].* for .* in ", "string": r"'", "list": r"(^|[^\w\])])\[", "dict": r"\{|\bd\[",
            "tuple": r"(return|=) \(\w+, |tuple\(",
        },
        "python", ("line", "lines"), code_lines, 0.95, (0.45, 0.80),
    ),
    "sql": Subject(
        {
            "condition": r" WHERE ", "calculation": r"SELECT .*( [-+*%] | \|\| |ABS\(|LENGTH\(|UPPER\().* FROM", "case": r"CASE ",
            "order": r" ORDER BY ", "limit": r" LIMIT ", "distinct": r"DISTINCT ", "aggregate": r"(COUNT|SUM|MIN|MAX)\(",
            "group": r" GROUP BY ", "having": r" HAVING ", "join": r" JOIN ", "subquery": r"\(SELECT .*FROM u", "union": r" UNION ",
            "common table expression": r"^WITH ", "text": r"'",
        },
        "sql", ("clause", "clauses"), sql_clauses, 0.90, (0.30, 0.80),
    ),
}  # fmt: skip
