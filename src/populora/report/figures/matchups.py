"""Teachers against students: TrueSkill ratings and cross-evaluation."""

import csv
import io
from itertools import cycle
from typing import Any

import numpy as np
import pyarrow.compute as pc

from populora.core.errors import RunDirectoryError
from populora.core.types import task_types
from populora.report.arms import PALETTE
from populora.report.drawing import STUDENT, TEACHER, Drawing, heatmap, mean, member_order, members_of, panels, tag_artist, trailing
from populora.report.figure import Figure, MissingFigure, Study, describe_first_run
from populora.report.figures.ancestry import ROLES
from populora.report.figures.rated_groups import GROUPED, draw_rated_groups
from populora.report.many_members import BANDS, draw_quantiles, too_many
from populora.report.run_data import Array, RunData, Steps
from populora.runs.directory import PAIRS

TRUESKILL = ("trueskill", "TrueSkill and the arms race", "Figure 5 (TrueSkill and arms race)")
MARKERS = "osD^vPX"
"""Their number has no divisor in common with that of the colours, so a pair repeats only after all 42."""
CROSS_EVALUATION = ("cross_evaluation", "Cross-evaluation over training", "Figure: cross-evaluation over training")
SNAPSHOTS = 5
MOST_WIDE = 5
"""Columns of a matrix whose numbers have room for two digits."""


def trueskill_figure(study: Study) -> Figure | MissingFigure:
    """Draw the ratings by role, and the share of matchups that each role won."""
    log = study.main.runs[0].metrics if study.main else None
    if not (study.main and log and log.under("rating/mu")):
        return MissingFigure(*TRUESKILL, "it needs a run with teachers and students")
    ratings = {member: log.get(f"rating/mu/{member}") for member in members_of(log)}
    wins = log.get("matchup/student_wins")
    league = study.main.runs[0].config.league
    bar = "what the ratings predicted" if league.outcome == "expected" else f"{league.threshold:g}"
    curves = [*((member, "rating/mu", values) for member, values in ratings.items()), ("all", "matchup/student_wins", wins)]
    return Figure(
        *TRUESKILL,
        definition=(
            "Of each role: mu of each member (thin) and the mean (bold). A thin line continues through the replacements of its member. "
            "Right: of the step's matchups that somebody won, the share of the students (blue) and of the teachers (orange), "
            f"trailing means; the area has the colour of the leading role. A student wins a matchup if mean rho is above {bar}."
            + (f" {BANDS}" if too_many(ratings) else "")
        ),
        source="metrics.jsonl: rating/mu/MEMBER, matchup/student_wins",
        runs=f"{describe_first_run(study.main)}; trailing means over {study.smooth} steps",
        rows=[
            {"member": member, "metric": metric, "step": step, "value": value}
            for member, metric, values in curves
            for step, value in zip(log.steps.tolist(), values.tolist(), strict=True)
            if value == value
        ],
        drawing=lambda: _draw_trueskill(log.steps, ratings, trailing(wins, study.smooth)),
    )


def _draw_trueskill(steps: Steps, ratings: dict[str, Array], wins: Array) -> Drawing:
    kinds = [kind for kind in ROLES if any(member[0] == kind for member in ratings)]
    drawing, axes = panels(1, len(kinds) + 1, width=3.2)
    for axis, kind in zip(axes[0], kinds, strict=False):
        (role, colour), of_role = ROLES[kind], {member: values for member, values in ratings.items() if member[0] == kind}
        if too_many(of_role):
            draw_quantiles(axis, steps, np.array(list(of_role.values())), colour)
        for member, values in of_role.items() if not too_many(of_role) else ():
            tag_artist(axis.plot(steps, values, color=colour, linewidth=0.7, alpha=0.5)[0], member)
        axis.plot(steps, mean(np.array(list(of_role.values()))), color=colour, linewidth=2)
        axis.set(title=f"mu of {role}", xlabel="step")
        if axis is not axes[0, 0]:
            axis.sharey(axes[0, 0])
    axis = axes[0, -1]
    axis.plot(steps, wins, color=STUDENT, label="students")
    axis.plot(steps, 1 - wins, color=TEACHER, label="teachers")
    for leading, colour in ((wins >= 0.5, STUDENT), (wins < 0.5, TEACHER)):
        axis.fill_between(steps, wins, 1 - wins, where=leading, color=colour, alpha=0.2, interpolate=True, linewidth=0)
    axis.set(title="matchups won", xlabel="step", ylim=(-0.02, 1.02))
    drawing.legend(loc="outside upper right", ncols=2)
    return drawing


def cross_evaluation_figure(study: Study, domain: str = "") -> Figure | MissingFigure:
    """Draw solve rates by student and teacher in five equal parts of the run, at all problems or at those of one of several domains."""
    identity = study.within(CROSS_EVALUATION, domain)[0] if domain else CROSS_EVALUATION
    if not study.main:
        return MissingFigure(*identity, "it needs a run with teachers and students", domain)
    run = study.main.runs[0]
    every_pair = recorded_pairs(run, domain)
    rows = every_pair or snapshots(run, domain)
    if not rows:
        return MissingFigure(
            *identity, "there are no attempts in the run's tables" + (f" at problems of {domain}" if domain else ""), domain
        )
    taken = (
        "At the steps of the titles every student attempted the problems that every teacher then proposed. Solve rate: correct attempts, "
        "void ones left out. "
        if every_pair
        else "The run is cut into five parts of equal length, named by their last step, because a student meets one teacher a step. Solve "
        "rate: correct attempts at a teacher's problems, void ones and those that only fill a batch left out. A gap: they never met. "
    )
    grouped, word = too_many(row[role] for row in rows for role in ("student", "teacher")), "after" if every_pair else "to"
    lines = GROUPED if grouped else "Each line is a student."
    return Figure(
        *identity,
        definition=f"{taken}{lines} A member (S0) can be several adapters one after the other: see the lineage.",
        source=f"{PAIRS}/*.csv"
        if every_pair
        else "attempts.parquet: step, student, author, correct, void, filled" + (", task" if domain else ""),
        runs=describe_first_run(study.main),
        rows=rows,
        domain=domain,
        drawing=lambda: draw_rated_groups(rows, run.metrics, word) if grouped else _draw_cross_evaluation(rows, word),
    )


def recorded_pairs(run: RunData, domain: str) -> list[dict[str, Any]]:
    """Read what `populora evaluate pairs` has written for the run: records as those of `snapshots`, at single steps.

    Without ``domain``, the rates of several domains are averaged over their attempts. Raises `RunDirectoryError`.
    """
    kinds = {"snapshot": int, "student": str, "teacher": str, "solve_rate": float, "attempts": int}
    try:
        texts = [file.read_text("utf-8") for file in sorted((run.folder / PAIRS).glob("step_*.csv"))]
        read = [row for text in texts for row in csv.DictReader(io.StringIO(text))]
        rows = [{name: kind(row[name]) for name, kind in kinds.items()} for row in read if domain in ("", row.get("domain"))]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise RunDirectoryError(f"cannot read '{run.folder / PAIRS}': {error!r}; remove it to leave these matrices out") from error
    merged: dict[tuple[int, str, str], dict[str, Any]] = {}
    for row in rows:
        earlier = merged.get(key := (row["snapshot"], row["student"], row["teacher"]))
        merged[key] = _average(row, earlier) if earlier else row
    return list(merged.values())


def _average(row: dict[str, Any], earlier: dict[str, Any]) -> dict[str, Any]:
    attempts = row["attempts"] + earlier["attempts"]
    solved = row["solve_rate"] * row["attempts"] + earlier["solve_rate"] * earlier["attempts"]
    return {**row, "solve_rate": solved / attempts, "attempts": attempts}


def snapshots(run: RunData, domain: str) -> list[dict[str, Any]]:
    """Return a record for each part of the run (``snapshot``: its last step), student and teacher."""
    if not run.recorded:
        return []
    tasks = list(map(str, task_types([domain] if domain else run.config.domains)))
    first, last = run.recorded[0], run.recorded[-1]
    ends = np.unique(np.ceil(np.linspace(first - 1, last, SNAPSHOTS + 1)[1:]).astype(int))
    table = run.table("attempts", ("step", "student", "author", "task", "correct", "void", "filled"))
    table = table.filter(~(pc.field("void") | pc.field("filled")) & pc.field("task").isin(tasks))
    snapshot = ends[np.searchsorted(ends, table["step"].to_numpy())]
    table = table.append_column("snapshot", [snapshot]).append_column("solved", pc.cast(table["correct"], "float64"))
    grouped = table.group_by(["snapshot", "student", "author"]).aggregate([("solved", "mean"), ("solved", "count")])
    names = ["snapshot", "student", "teacher", "solve_rate", "attempts"]
    rows = grouped.select(["snapshot", "student", "author", "solved_mean", "solved_count"]).rename_columns(names).to_pylist()
    return sorted(rows, key=lambda row: (row["snapshot"], member_order(row["student"]), member_order(row["teacher"])))


def _draw_cross_evaluation(rows: list[dict[str, Any]], word: str) -> Drawing:
    students, teachers = (sorted({row[key] for row in rows}, key=member_order) for key in ("student", "teacher"))
    ends, digits = sorted({row["snapshot"] for row in rows}), 1 if len(teachers) > MOST_WIDE else 2
    drawing, axes = panels(2, len(ends), width=2.0, height=1.9)
    for column, end in enumerate(ends):
        rates = {(row["student"], row["teacher"]): row["solve_rate"] for row in rows if row["snapshot"] == end}
        values = np.array([[rates.get((student, teacher), np.nan) for teacher in teachers] for student in students])
        for student, line, colour, marker in zip(students, values, cycle(PALETTE), cycle(MARKERS), strict=False):
            style = {"color": colour, "marker": marker, "markersize": 3.5, "linewidth": 1.0, "alpha": 0.85}  # lines may coincide
            tag_artist(axes[0, column].plot(range(len(teachers)), line, label=student, **style)[0], student)
        axes[0, column].set_xticks(range(len(teachers)), teachers)
        axes[0, column].set(ylim=(-0.02, 1.02), title=f"{word} step {end}")
        heatmap(axes[1, column], values, students, teachers, digits)
    axes[0, 0].set_ylabel("solve rate")
    axes[1, 0].set_ylabel("student")
    drawing.supxlabel("teacher", fontsize=8)
    axes[0, -1].legend(loc="lower left", bbox_to_anchor=(1.0, 0.0))
    return drawing
