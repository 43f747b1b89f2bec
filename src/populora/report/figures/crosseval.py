"""Who solves whose problems: profiles of the students against each teacher at five snapshots."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from populora.report.arms import PALETTE
from populora.report.figure import Absent, Figure, Study, one_run
from populora.report.loading import Array, RunData

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

MARKERS = "osD^vPX"
"""As many as have no divisor in common with the colours: a pair comes again after all 42."""
NAME, TITLE, PAPER = "cross_evaluation", "Cross-evaluation over training", "Figure: cross-evaluation over training"
SNAPSHOTS = 5
MOST_WIDE = 5
"""Columns of a matrix whose numbers have room for two digits."""


def cross_evaluation_figure(study: Study) -> Figure | Absent:
    """Solve rates by student and teacher in five equal stretches of the run."""
    if not study.main:
        return Absent(NAME, TITLE, "it needs a run with teachers and students", PAPER)
    found = snapshots(study.main.runs[0])
    if not found:
        return Absent(NAME, TITLE, "there are no attempts in the run's tables", PAPER)
    return Figure(
        name=NAME,
        title=TITLE,
        definition=(
            "A student meets one teacher a step, so a snapshot is the stretch of steps since the one before it: the run is cut into five "
            "stretches of equal length, named by their last step. Solve rate: correct attempts at a teacher's problems, void ones and "
            "those that only fill a batch left out; the number of attempts is in the CSV. A gap: they never met. Each line is a student; "
            "flat lines are uniform solvers, kinks specialists. A place (S0) can hold several adapters one after the other: see the "
            "lineage."
        ),
        source="attempts.parquet: step, student, author, correct, void, filled",
        shown=one_run(study.main),
        rows=found,
        draw=lambda: _draw(found),
        paper=PAPER,
    )


def snapshots(run: RunData) -> list[dict[str, Any]]:
    """For each stretch, student and teacher: ``snapshot`` (its last step), ``solve_rate``, ``attempts``."""
    if not run.recorded:
        return []
    first, last = run.recorded[0], run.recorded[-1]
    ends = np.unique(np.ceil(np.linspace(first - 1, last, SNAPSHOTS + 1)[1:]).astype(int))
    table = run.table("attempts", ("step", "student", "author", "correct", "void", "filled"))
    table = table.filter(~(pc.field("void") | pc.field("filled")))
    snapshot = ends[np.searchsorted(ends, table["step"].to_numpy())]
    table = table.append_column("snapshot", [snapshot]).append_column("solved", pc.cast(table["correct"], "float64"))
    grouped = table.group_by(["snapshot", "student", "author"]).aggregate([("solved", "mean"), ("solved", "count")])
    rows = sorted(grouped.to_pylist(), key=lambda row: (row["snapshot"], _place(row["student"]), _place(row["author"])))
    return [
        {
            "snapshot": row["snapshot"],
            "student": row["student"],
            "teacher": row["author"],
            "solve_rate": row["solved_mean"],
            "attempts": row["solved_count"],
        }
        for row in rows
    ]


def _place(member: str) -> tuple[int, str]:
    """T10 comes after T9."""
    return len(member), member


def _matrix(rows: list[dict[str, Any]], snapshot: int, students: list[str], teachers: list[str]) -> Array:
    values = np.full((len(students), len(teachers)), np.nan)
    for row in rows:
        if row["snapshot"] == snapshot:
            values[students.index(row["student"]), teachers.index(row["teacher"])] = row["solve_rate"]
    return values


def _draw(rows: list[dict[str, Any]]) -> Drawing:
    from populora.report.drawing import heat, mark, panels

    students, teachers = (sorted({row[key] for row in rows}, key=_place) for key in ("student", "teacher"))
    ends, digits = sorted({row["snapshot"] for row in rows}), 1 if len(teachers) > MOST_WIDE else 2
    drawing, axes = panels(2, len(ends), width=2.0, height=1.9)
    looks = dict(zip(students, zip(cycle(PALETTE), cycle(MARKERS), strict=False), strict=False))
    for column, end in enumerate(ends):
        values = _matrix(rows, end, students, teachers)
        for (student, (colour, sign)), line in zip(looks.items(), values, strict=True):
            style = {"color": colour, "marker": sign, "markersize": 3.5, "linewidth": 1.0, "alpha": 0.85}  # one may lie behind another
            mark(axes[0, column].plot(range(len(teachers)), line, label=student, **style)[0], student)
        axes[0, column].set_xticks(range(len(teachers)), teachers)
        axes[0, column].set(ylim=(-0.02, 1.02), title=f"to step {end}")
        heat(axes[1, column], values, students, teachers, digits)
    axes[0, 0].set_ylabel("solve rate")
    axes[1, 0].set_ylabel("student")
    drawing.supxlabel("teacher", fontsize=8)
    axes[0, -1].legend(loc="lower left", bbox_to_anchor=(1.0, 0.0))
    return drawing
