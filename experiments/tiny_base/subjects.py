"""What the acceptance tests ask of the programs of each language."""

import re
from collections.abc import Callable
from dataclasses import dataclass


def code_lines(program: str) -> int:
    return sum(bool(line.strip()) for line in program.splitlines())


def sql_tokens(statement: str) -> int:
    """Words, numbers, strings and signs: the length of a statement, as lines are that of a Python program."""
    return len(re.findall(r"'[^']*'|\w+|[^\w\s]", statement))


@dataclass(frozen=True)
class Subject:
    """A language. Programs of a model are never parsed in this process, so all is seen from their text."""

    constructs: dict[str, str]
    """How the text of a program shows that it uses each."""
    fence: str
    unit: tuple[str, str]
    """What the size of a program is counted in, and its plural."""
    size: Callable[[str], int]
    """The length of a program, from its text alone: it must also fit one that is invalid."""
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
        "sql", ("token", "tokens"), sql_tokens, 0.90, (0.30, 0.80),
    ),
}  # fmt: skip
