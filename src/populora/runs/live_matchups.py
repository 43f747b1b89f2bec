"""The matchups of the live table: the ratings as bars, the solved share of each matchup, and the lead.

Teachers are orange and grow to the left, students blue and grow to the right; a row is a matchup.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from populora.core.types import Matchup, Member, Role
from populora.runs.highlights import Log
from populora.runs.style import ROLE_COLOURS, SHOWN_SINGLY

BAR, LEADS, ENDS = 9, 40, 5
"""Cells of a bar of ratings; matchups in the line of leads, and at each end of many."""
MATCHUP_COLUMNS: dict[str, Literal["left", "center", "right"]] = {
    "teachers": "right", " rating ": "left", "solved (expect)": "center", " rating": "left", "students": "left"
}  # fmt: skip
TEACHER, STUDENT = ROLE_COLOURS[Role.TEACHER.value], ROLE_COLOURS[Role.STUDENT.value]


def draw_matchups(members: Sequence[Member], matchups: Sequence[Matchup], history: Log) -> RenderableType:
    """Draw the ratings as bars around the matchups. The arrow points to the winner; the solved share is before the predicted one.

    Of many matchups there are the most lopsided and the most even ones, by the solved share.
    """
    if not matchups or len(members) == 1:  # the single agent plays no games
        return Text()
    by_name = {member.id: member for member in members}
    means = [member.rating.mu for member in members]
    low, high = min(15.0, *means), max(35.0, *means)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    for caption, justify in MATCHUP_COLUMNS.items():
        table.add_column(caption, justify=justify, no_wrap=True, min_width=BAR if caption in ("teachers", "students") else None)
    shown, note = (matchups, "") if len(matchups) <= SHOWN_SINGLY else _extremes(matchups)
    for place, matchup in enumerate(shown, start=1):
        teacher, student = by_name[matchup.teacher], by_name[matchup.student]
        bars = ["█" * round(BAR * (member.rating.mu - low) / (high - low)) for member in (teacher, student)]
        table.add_row(
            Text(bars[0], TEACHER), _rated(teacher, TEACHER), _outcome(matchup), _rated(student, STUDENT), Text(bars[1], STUDENT),
            end_section=bool(note) and place == ENDS,
        )  # fmt: skip
    wins = [line["matchup/student_wins"] for line in history if "matchup/student_wins" in line]
    leads = [("█", STUDENT if share > 0.5 else TEACHER if share < 0.5 else "dim") for share in wins[-LEADS:]]
    return Group(table, *([Text(note, "dim")] if note else []), Text.assemble(" ahead  ", *leads))


def _extremes(matchups: Sequence[Matchup]) -> tuple[list[Matchup], str]:
    """Return the most lopsided matchups, then the most even ones, and a line about the others."""
    solved = [(matchup.mean_rho, matchup) for matchup in matchups if matchup.mean_rho is not None]
    if not solved:
        return [], f"{len(matchups)} matchups, none with an attempt"
    ordered = sorted(solved, key=lambda pair: abs(pair[0] - 0.5), reverse=True)
    shown = [matchup for _, matchup in (*ordered[:ENDS], *ordered[ENDS:][-ENDS:])]
    others, unsolved = [rho for rho, _ in ordered[ENDS:-ENDS]], len(matchups) - len(solved)
    mean = f", and {len(others)} more, mean {fmean(others):.2f}" if others else ""
    return shown, f"the most lopsided, the most even{mean}" + (f", {unsolved} without an attempt" if unsolved else "")


def _outcome(matchup: Matchup) -> Text:
    solved = f"{matchup.mean_rho:.2f}" if matchup.mean_rho is not None else "-"
    ends = {"teacher": ("◀ ", "  "), "student": ("  ", " ▶"), "neither": ("  ", "  "), "none": ("  ", "  ")}[matchup.outcome]
    return Text.assemble((ends[0], TEACHER), solved, (f" ({matchup.expected:.2f})", "dim"), (ends[1], STUDENT))


def _rated(member: Member, colour: str) -> Text:
    return Text.assemble(" ", (member.id, f"bold {colour}"), f" {member.rating.mu:.1f} ")
