"""A figure: what it shows and means, the records behind it, and how they are drawn; or why it could not be made."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from populora.evals.text_table import TextTable
from populora.report.arms import Arm

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """One figure of a report."""

    name: str
    """Of its files, and its place in the page."""
    title: str
    definition: str
    """What exactly is drawn, in full sentences."""
    source: str
    """The columns of the run directory that it is computed from."""
    shown: str
    """How many runs and seeds."""
    rows: Sequence[Row]
    """The numbers as records, all with the same keys."""
    draw: Callable[[], Drawing]
    paper: str = ""
    """What it is in the paper; empty for what the paper does not have."""
    tables: tuple[TextTable, ...] = ()
    """What stands under it in words and numbers."""

    def csv(self) -> str:
        """The records, with a header; lines end as RFC 4180 has them, or else a program's own carriage return would stand unquoted."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.rows[0]) if self.rows else [])
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()


@dataclass(frozen=True)
class Absent:
    """A figure that could not be made, and what it lacks."""

    name: str
    title: str
    reason: str
    paper: str = ""


@dataclass(frozen=True)
class Study:
    """What a report is about."""

    arms: tuple[Arm, ...]
    evaluations: tuple[Path, ...] = ()
    """Folders of `populora evaluate`."""
    retention: Path | None = None
    """Folder of `populora retention`."""
    published: bool = False
    """Lay the paper's downstream table under ours."""
    smooth: int = 5
    """Steps of the trailing means that are drawn."""

    @property
    def missing(self) -> list[tuple[str, str]]:
        """What could not be read, by the name of the run."""
        return [(run.name, note) for arm in self.arms for run in arm.runs for note in run.missing]

    @property
    def populations(self) -> tuple[Arm, ...]:
        """The arms with teachers and students."""
        return tuple(arm for arm in self.arms if not arm.single_agent)

    @property
    def main(self) -> Arm | None:
        """The arm that figures of one population show: the first with the most members, a baseline only where there is no other."""
        return max(self.populations, key=lambda arm: (not arm.baseline, arm.adapters), default=None)


def shown(arms: Sequence[Arm]) -> str:
    """``baseline (1 agent): 2 runs, seeds 0, 1; 4T+4S: 1 run, seed 0``."""
    parts = []
    for arm in arms:
        runs, seeds = len(arm.runs), ", ".join(map(str, arm.seeds))
        parts.append(f"{arm.label}: {runs} {'run' if runs == 1 else 'runs'}, seed{'' if runs == 1 else 's'} {seeds}")
    return "; ".join(parts)


def one_run(arm: Arm) -> str:
    """What a figure shows that is about one run: the arm's first."""
    others = len(arm.runs) - 1
    return f"{arm.label}: run {arm.runs[0].name}, seed {arm.seeds[0]}" + (f" (the first of {others + 1})" if others else "")
