"""Cross-evaluation of a large population: means over groups of members in the order of their ratings."""

from collections.abc import Sequence

import numpy as np

from populora.report.arms import PALETTE
from populora.report.drawing import PALE, Drawing, panels
from populora.report.figure import Record
from populora.report.many_members import by_rating
from populora.report.run_data import Array, Log
from populora.runs.style import SHOWN_SINGLY

GROUPED = (
    f"The members of each role are in the order of their mu at that step, in at most {SHOWN_SINGLY} groups of equal size. A cell is the "
    "mean over the attempts of its groups, grey if there are none. Above, a line is a quarter of the students, also by mu. The CSV has "
    "every pair."
)
QUARTERS = ("weakest quarter of the students", "second", "third", "strongest")


def draw_rated_groups(rows: Sequence[Record], log: Log, word: str) -> Drawing:
    """Draw the solve rates of `populora.report.figures.matchups.snapshots` by quarters of the students, and as a matrix of groups."""
    ends, (students, teachers) = sorted({row["snapshot"] for row in rows}), ({row[key] for row in rows} for key in ("student", "teacher"))
    drawing, axes = panels(2, len(ends), width=2.0, height=1.9, sharex=True, sharey="row")
    for (above, below), end in zip(axes.T, ends, strict=True):
        of_end = [row for row in rows if row["snapshot"] == end]
        columns = by_rating(log, end, sorted(teachers))
        quarters = mean_rates(of_end, by_rating(log, end, sorted(students), len(QUARTERS)), columns)
        for name, line, colour in zip(QUARTERS, quarters, PALETTE, strict=False):
            above.plot(line, "o-", color=colour, markersize=2.5, linewidth=1.0, label=name)
        above.set(ylim=(-0.02, 1.02), title=f"{word} step {end}")
        matrix = mean_rates(of_end, by_rating(log, end, sorted(students)), columns)
        below.imshow(matrix, cmap="Blues", vmin=0, vmax=1, aspect="auto", origin="lower")
        below.patch.set(facecolor=PALE, alpha=0.3)
        below.set_xticks([0, len(columns) - 1], ["weakest", "strongest"])
        below.set_yticks([0, len(matrix) - 1], ["weakest", "strongest"])
        below.grid(visible=False)
    axes[0, 0].set_ylabel("solve rate")
    axes[1, 0].set_ylabel("students")
    drawing.supxlabel("teachers", fontsize=8)
    drawing.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper left", ncols=len(QUARTERS))
    drawing.colorbar(axes[1, -1].images[0], ax=axes[1, -1], label="solve rate")
    return drawing


def mean_rates(rows: Sequence[Record], students: Sequence[Sequence[str]], teachers: Sequence[Sequence[str]]) -> Array:
    """Return the mean solve rate over the attempts of each group of students and of teachers [students, teachers]; NaN without any."""
    row_of, column_of = ({member: index for index, group in enumerate(groups) for member in group} for groups in (students, teachers))
    solved, attempts = np.zeros((2, len(students), len(teachers)))
    for row in rows:
        cell = row_of[row["student"]], column_of[row["teacher"]]
        solved[cell] += row["solve_rate"] * row["attempts"]
        attempts[cell] += row["attempts"]
    return np.divide(solved, attempts, out=np.full(solved.shape, np.nan), where=attempts > 0)
