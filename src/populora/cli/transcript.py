"""A step as text for reading: each problem with its examples and reward, each answer with its reasoning and verdict.

Model text goes through `printable`: control characters are shown, not sent to the terminal, and nothing is read as markup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from populora.core.errors import ConfigError
from populora.runs.style import ROLE_COLOURS, plural, printable

Row = Mapping[str, Any]
TEACHER, STUDENT = ROLE_COLOURS["teacher"], ROLE_COLOURS["student"]
ASKED = {"code_i": "input", "code_o": "output", "code_f": "function"}


@dataclass(frozen=True)
class Selection:
    """What to print of a step; ``None`` means all, as does a ``limit`` of 0."""

    teacher: str | None = None
    student: str | None = None
    task: str | None = None
    limit: int = 5


def render_step(tables: Mapping[str, Sequence[Row]], selection: Selection) -> Iterator[RenderableType]:
    """The matchups, then the problems with their answers, then the rejected proposals with the reasons.

    Raises `ConfigError` for a member that took no part in the step.
    """
    _check_member("teacher", selection.teacher, {row["author"] for row in tables["proposals"]})
    _check_member("student", selection.student, {row["student"] for row in tables["attempts"]})
    for matchup in tables["matchups"]:
        if selection.teacher in (None, matchup["teacher"]) and selection.student in (None, matchup["student"]):
            yield _matchup(matchup)
    contents = {row["problem_id"]: row for row in tables["problems"]}
    chosen = [row for row in tables["proposals"] if selection.teacher in (None, row["author"]) and selection.task in (None, row["task"])]
    attempts: dict[str, list[Row]] = {}
    for row in tables["attempts"]:
        if selection.student in (None, row["student"]):
            attempts.setdefault(row["problem_id"], []).append(row)
    valid = [row for row in chosen if row["valid"] and (selection.student is None or row["problem_id"] in attempts)]
    shown = valid[: selection.limit or None]
    for proposal in shown:
        yield _problem(proposal, contents[proposal["problem_id"]], attempts.get(proposal["problem_id"], []))
    yield Text(f"\n{len(shown)} of {plural(len(valid), 'valid problem')} shown", "dim")
    if selection.student is None:
        yield from _rejected([row for row in chosen if not row["valid"]], selection.limit)


def _check_member(role: str, member: str | None, known: set[str]) -> None:
    if member is not None and member not in known:
        raise ConfigError(f"--{role} is '{member}': expected one of {', '.join(sorted(known)) or 'none'}, who took part in this step.")


def _matchup(row: Row) -> Text:
    solved = f"solved {row['mean_rho']:.2f}" if row["mean_rho"] is not None else "nothing to solve"
    winner = {"teacher": f"{row['teacher']} wins", "student": f"{row['student']} wins", "none": "no game"}[row["outcome"]]
    return Text.assemble(
        (row["teacher"], f"bold {TEACHER}"), " against ", (row["student"], f"bold {STUDENT}"),
        f"  {solved}, predicted {row['expected']:.2f}: {winner}",
    )  # fmt: skip


def _problem(proposal: Row, problem: Row, attempts: Sequence[Row]) -> RenderableType:
    rho = "void: the gold value did not reproduce" if proposal["rho"] is None else f"solved {proposal['rho']:.2f}"
    title = Text.assemble(
        (proposal["author"], f"bold {TEACHER}"),
        f"  {proposal['task']}  {proposal['problem_id']}  asks for the {ASKED[proposal['task']]}  {rho}  reward {_reward(proposal)}",
    )
    counts = [plural(proposal["loc"], "line"), f"cyclomatic {proposal['cyclomatic']}", f"depth {proposal['ast_depth']}"]
    measures = ", ".join([*counts, plural(proposal["variables"], "variable")])
    parts: list[RenderableType] = [
        Text(),
        Rule(title, align="left", style="dim"),
        Syntax(printable(problem["program"]), "python", theme="ansi_dark", background_color="default"),
    ]
    parts += [_example(example, hidden=False) for example in problem["shown"]]
    parts += [_example(example, hidden=True) for example in problem["hidden"]]
    if problem["message"]:
        parts.append(Text.assemble(("message  ", "dim"), printable(problem["message"])))
    parts.append(Text(measures, "dim"))
    return Group(*parts, *_answers(attempts))


def _example(example: Row, hidden: bool) -> Text:
    text = Text.assemble(("f", "bold"), f"({printable(example['inputs'])}) → {printable(example['output'])}")
    return text.append("  hidden", "dim") if hidden else text


def _answers(attempts: Sequence[Row]) -> Iterator[RenderableType]:
    """Equal answers once, with how often they came."""
    groups: dict[tuple[Any, ...], int] = Counter(
        (row["student"], row["text"], row["correct"], row["void"], row["reason"], row["reward"], row["trained"]) for row in attempts
    )
    for (student, text, correct, void, reason, reward, trained), count in groups.items():
        mark, colour = ("?", "yellow") if void else ("✓", "green") if correct else ("✗", "red")
        why = f"  {reason}" if reason else ""
        note = "" if trained else "  (not trained on)"
        times = f"  ×{count}" if count > 1 else ""
        yield Text.assemble(
            "\n", (f"{mark} ", f"bold {colour}"), (student, f"bold {STUDENT}"), f"{times}  reward {reward:+.2f}{why}", (note, "dim")
        )
        yield Padding(Text(printable(text.strip())), (0, 0, 0, 2))


def _rejected(rows: Sequence[Row], limit: int) -> Iterator[RenderableType]:
    if not rows:
        return
    yield Text()
    counts = ", ".join(f"{reason} {count}" for reason, count in Counter(row["rejection"] for row in rows).most_common())
    yield Rule(Text(f"{plural(len(rows), 'proposal')} rejected: {printable(counts)}"), align="left", style="dim")
    for row in rows[: limit or None]:
        yield Text.assemble(
            (row["author"], f"bold {TEACHER}"), f"  {row['task']}  ", (printable(row["rejection"]), "red"), f"  reward {_reward(row)}"
        )
        yield Padding(Text(printable(row["text"].strip())), (0, 0, 0, 2))


def _reward(row: Mapping[str, Any]) -> str:
    return "none (void)" if row["reward"] is None else f"{row['reward']:+.2f}"
