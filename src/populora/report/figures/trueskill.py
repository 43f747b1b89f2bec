"""TrueSkill over training and the alternating lead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from populora.report.curves import MEMBER, mean, trailing
from populora.report.figure import Absent, Figure, Study, one_run
from populora.report.loading import Array, RunData

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

NAME, TITLE, PAPER = "trueskill", "TrueSkill and the arms race", "Figure 5 (TrueSkill and arms race)"


def trueskill_figure(study: Study) -> Figure | Absent:
    """Ratings by role, and which role won the matchups."""
    if not (study.main and study.main.runs[0].metrics.under("rating/mu")):
        return Absent(NAME, TITLE, "it needs a run with teachers and students", PAPER)
    run = study.main.runs[0]
    log, ratings = run.metrics, _ratings(run)
    wins = log.get("matchup/student_wins")
    rows = [
        {"member": member, "metric": metric, "step": step, "value": value}
        for member, metric, values in (*((m, "rating/mu", v) for m, v in ratings.items()), ("all", "matchup/student_wins", wins))
        for step, value in zip(log.steps.tolist(), values.tolist(), strict=True)
        if value == value
    ]
    return Figure(
        name=NAME,
        title=TITLE,
        definition=(
            "Left and centre: mu of each member (thin) and the mean of its role (bold), a thin line going on through the replacements at "
            "its place. Right: share of the step's matchups that the students won (blue) and the teachers won (orange), trailing means; "
            "the area has the colour of who leads. A student wins a matchup where mean rho is above what the ratings predicted."
        ),
        source="metrics.jsonl: rating/mu/MEMBER, matchup/student_wins",
        shown=f"{one_run(study.main)}; trailing means over {study.smooth} steps",
        rows=rows,
        draw=lambda: _draw(run, ratings, trailing(wins, study.smooth)),
        paper=PAPER,
    )


def _ratings(run: RunData) -> dict[str, Array]:
    return {member: run.metrics.get(f"rating/mu/{member}") for member in run.metrics.under("rating/mu") if MEMBER.fullmatch(member)}


def _draw(run: RunData, ratings: dict[str, Array], wins: Array) -> Drawing:
    from populora.report.drawing import STUDENT, TEACHER, mark, panels

    drawing, axes = panels(1, 3, width=3.2)
    steps = run.metrics.steps
    for axis, role, colour, initial in zip(axes[0], ("teachers", "students"), (TEACHER, STUDENT), "TS", strict=False):
        own = {member: values for member, values in ratings.items() if member[0] == initial}
        for member, values in own.items():
            mark(axis.plot(steps, values, color=colour, linewidth=0.7, alpha=0.5)[0], member)
        if own:
            axis.plot(steps, mean(np.array(list(own.values()))), color=colour, linewidth=2)
        axis.set_title(f"mu of {role}")
        axis.set_xlabel("step")
    axes[0, 1].sharey(axes[0, 0])
    axis = axes[0, 2]
    axis.plot(steps, wins, color=STUDENT, label="students")
    axis.plot(steps, 1 - wins, color=TEACHER, label="teachers")
    axis.fill_between(steps, wins, 1 - wins, where=wins >= 0.5, color=STUDENT, alpha=0.2, interpolate=True, linewidth=0)
    axis.fill_between(steps, wins, 1 - wins, where=wins < 0.5, color=TEACHER, alpha=0.2, interpolate=True, linewidth=0)
    axis.set(title="matchups won", xlabel="step", ylim=(-0.02, 1.02))
    drawing.legend(loc="outside upper right", ncols=2)
    return drawing
