"""Words, colours and small drawings shared by the live display, the plain lines and the closing table."""

from collections.abc import Sequence

from populora.core.types import Lineage, Role
from populora.runs.step_record import Evolution

ROLE_COLOURS = {Role.TEACHER.value: "dark_orange", Role.STUDENT.value: "dodger_blue2", Role.AGENT.value: "grey70"}
PHASES = ("matchmaking", "propose and solve", "update", "publish", "store", "evaluate", "evolve")

CAPTIONS = {
    "student/solve_rate": "solve rate",
    "teacher/difficulty": "difficulty",
    "teacher/validity": "valid problems",
    "student/format_rate": "answer format",
    "teacher/loc": "lines of code",
    "teacher/cyclomatic": "cyclomatic",
    "teacher/ast_depth": "AST depth",
    "teacher/variables": "variables",
    "teacher/response_length": "problem tokens",
    "student/response_length": "answer tokens",
    "learner/entropy/teacher": "teacher entropy",
    "learner/entropy/student": "student entropy",
    "learner/entropy/agent": "agent entropy",
    "archive/coverage": "coverage",
    "held_out/accuracy": "held-out accuracy",
}

_BLOCKS = "▁▂▃▄▅▆▇█"


def format_duration(seconds: float) -> str:
    """Format as ``2:31`` or ``1:02:31``."""
    minutes, remainder = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{remainder:02d}" if hours else f"{minutes}:{remainder:02d}"


def format_metric(name: str, value: float, signed: bool = False) -> str:
    """Format a metric with the digits that carry meaning: two for shares, one for lengths, per cent for coverage."""
    sign = "+" if signed else ""
    if name == "archive/coverage":
        return f"{100 * value:{sign}.1f} %"
    return f"{value:{sign}.1f}" if name.endswith("length") else f"{value:{sign}.2f}"


def plural(count: int, singular: str, many: str = "") -> str:
    """Format as ``1 child`` or ``2 children``."""
    return f"{count} {singular if count == 1 else many or singular + 's'}"


def printable(text: str) -> str:
    """Escape control and other unprintable characters of model text, except line breaks and tabs."""
    if text.replace("\n", "").replace("\t", "").isprintable():  # nearly all of it, and ten times as fast
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode("ascii") for c in text)


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw the last ``width`` values as blocks between their own minimum and maximum."""
    recent = list(values)[-width:]
    low, high = min(recent, default=0), max(recent, default=0)
    return "".join(_BLOCKS[round(7 * (value - low) / (high - low)) if high > low else 3] for value in recent)


def describe_evolution(evolution: Evolution) -> list[str]:
    """Describe each birth as ``bred T1 = x2(T0, T3)``, then the newborns that were spared and the broken teachers."""
    births = [f"bred {describe_child(child)}" for child in evolution.children]
    spared = [f"newborn {member} stays" for member in evolution.spared]
    return births + spared + [f"{member} had too few valid problems of a type" for member in evolution.broken]


def describe_child(child: Lineage) -> str:
    """Format a birth as ``T1 = x2(T0, T3)``."""
    return f"{child.member} = {child.operator}({', '.join(name.split('#')[0] for name in child.parent_names)})"
