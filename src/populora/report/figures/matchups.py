"""Teachers against students: TrueSkill ratings, the calibration of predicted outcomes, and cross-evaluation."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
import pyarrow.compute as pc
from scipy.stats import binomtest

from populora.report.arms import PALETTE
from populora.report.drawing import PALE, STUDENT, TEACHER, Drawing, heatmap, mean, member_order, members_of, panels, tag_artist, trailing
from populora.report.figure import Figure, MissingFigure, Study, describe_first_run, describe_runs
from populora.report.run_data import Array, RunData, Steps

TRUESKILL = ("trueskill", "TrueSkill and the arms race", "Figure 5 (TrueSkill and arms race)")
CALIBRATION = ("calibration", "Calibration of the predicted outcomes", "")
BINS = 10
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
    curves = [*((member, "rating/mu", values) for member, values in ratings.items()), ("all", "matchup/student_wins", wins)]
    return Figure(
        *TRUESKILL,
        definition=(
            "Left and centre: mu of each member (thin) and the mean of its role (bold). A thin line continues through the replacements of "
            "its member. Right: share of the step's matchups that the students won (blue) and the teachers won (orange), trailing means; "
            "the area has the colour of the leading role. A student wins a matchup if mean rho is above what the ratings predicted."
        ),
        source="metrics.jsonl: rating/mu/MEMBER, matchup/student_wins",
        runs=f"{describe_first_run(study.main)}; trailing means over {study.smooth} steps",
        rows=[
            {"member": member, "metric": metric, "step": step, "value": value}
            for member, metric, values in curves
            for step, value in zip(log.steps.tolist(), values.tolist(), strict=True)
            if value == value
        ],
        draw=lambda: _draw_trueskill(log.steps, ratings, trailing(wins, study.smooth)),
    )


def _draw_trueskill(steps: Steps, ratings: dict[str, Array], wins: Array) -> Drawing:
    drawing, axes = panels(1, 3, width=3.2)
    for axis, role, colour in zip(axes[0], ("teachers", "students"), (TEACHER, STUDENT), strict=False):
        of_role = {member: values for member, values in ratings.items() if member[0] == role[0].upper()}
        for member, values in of_role.items():
            tag_artist(axis.plot(steps, values, color=colour, linewidth=0.7, alpha=0.5)[0], member)
        if of_role:
            axis.plot(steps, mean(np.array(list(of_role.values()))), color=colour, linewidth=2)
        axis.set(title=f"mu of {role}", xlabel="step")
    axes[0, 1].sharey(axes[0, 0])
    axis = axes[0, 2]
    axis.plot(steps, wins, color=STUDENT, label="students")
    axis.plot(steps, 1 - wins, color=TEACHER, label="teachers")
    for leading, colour in ((wins >= 0.5, STUDENT), (wins < 0.5, TEACHER)):
        axis.fill_between(steps, wins, 1 - wins, where=leading, color=colour, alpha=0.2, interpolate=True, linewidth=0)
    axis.set(title="matchups won", xlabel="step", ylim=(-0.02, 1.02))
    drawing.legend(loc="outside upper right", ncols=2)
    return drawing


def calibration_figure(study: Study) -> Figure | MissingFigure:
    """Draw how the predicted outcomes of matchups compare with what happened."""
    games = [game for run in (study.main.runs if study.main else ()) for game in _games(run)]
    if not games or not study.main:
        return MissingFigure(*CALIBRATION, "it needs a run with teachers and students and finished matchups")
    bins = calibration_bins(games)
    brier = float(np.mean([(game["expected"] - game["won"]) ** 2 for game in games]))
    return Figure(
        *CALIBRATION,
        definition=(
            "Matchups in bins of the prediction before they were played, Phi((mu_s - mu_t) / sqrt(2 beta^2 + sigma_s^2 + sigma_t^2)). "
            "Left: the share that the student won, with the exact 95 % interval of a proportion, as if games were independent. Right: the "
            f"mean rho that the prediction is an expectation of. Over {len(games)} games the Brier score is {brier:.3f} (always predicting "
            "one half: 0.250). A student wins whenever mean rho is above the prediction, so a prediction that is too low wins: the mean "
            "rho should be on the diagonal, the share won need not."
        ),
        source="matchups.parquet: expected, outcome, mean_rho",
        runs=describe_runs((study.main,)),
        rows=bins,
        draw=lambda: _draw_calibration(bins),
    )


def calibration_bins(games: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Count games in `BINS` equal bins of ``expected``; of each bin the mean prediction, share won with exact interval, and mean rho."""
    bins: list[dict[str, Any]] = []
    for index in range(BINS):
        members = [game for game in games if min(int(game["expected"] * BINS), BINS - 1) == index]
        if members:
            won = sum(game["won"] for game in members)
            interval = binomtest(won, len(members)).proportion_ci(0.95)
            predicted, rho = (float(np.mean([game[key] for game in members])) for key in ("expected", "mean_rho"))
            share = {"won": won / len(members), "low": float(interval.low), "high": float(interval.high)}
            bins.append({"games": len(members), "predicted": predicted, **share, "mean_rho": rho})
    return bins


def _games(run: RunData) -> list[dict[str, Any]]:
    rows = run.table("matchups", ("expected", "mean_rho", "outcome")).drop_null().to_pylist()
    return [{**row, "won": row["outcome"] == "student"} for row in rows if row["outcome"] != "none"]


def _draw_calibration(bins: list[dict[str, Any]]) -> Drawing:
    drawing, axes = panels(1, 2, width=3.2, height=2.6)
    share, rho = axes[0]
    for axis in axes[0]:
        axis.plot([0, 1], [0, 1], color=PALE, linewidth=0.8, linestyle="--")
        axis.set(xlim=(0, 1), ylim=(-0.04, 1.08), xlabel="predicted")
    columns = {key: np.array([row[key] for row in bins]) for key in bins[0]}
    predicted, won = columns["predicted"], columns["won"]
    errors = [won - columns["low"], columns["high"] - won]
    share.errorbar(predicted, won, errors, fmt="o", color=STUDENT, markersize=4, elinewidth=0.8)
    for count, x, y in zip(columns["games"], predicted, won, strict=True):
        share.annotate(str(count), (x, y), (3, 3), textcoords="offset points", fontsize=6)
    share.set_title("observed: share won (games)")
    rho.plot(predicted, columns["mean_rho"], "o", color=STUDENT, markersize=4)
    rho.set_title("observed: mean rho")
    return drawing


def cross_evaluation_figure(study: Study) -> Figure | MissingFigure:
    """Draw solve rates by student and teacher in five equal parts of the run."""
    if not study.main:
        return MissingFigure(*CROSS_EVALUATION, "it needs a run with teachers and students")
    rows = snapshots(study.main.runs[0])
    if not rows:
        return MissingFigure(*CROSS_EVALUATION, "there are no attempts in the run's tables")
    return Figure(
        *CROSS_EVALUATION,
        definition=(
            "A student meets one teacher a step, so a snapshot is a part of the run: it is cut into five parts of equal length, named by "
            "their last step. Solve rate: correct attempts at a teacher's problems, void ones and those that only fill a batch left out; "
            "the number of attempts is in the CSV. A gap: they never met. Each line is a student; flat lines are uniform solvers, kinks "
            "specialists. A member (S0) can be several adapters one after the other: see the lineage."
        ),
        source="attempts.parquet: step, student, author, correct, void, filled",
        runs=describe_first_run(study.main),
        rows=rows,
        draw=lambda: _draw_cross_evaluation(rows),
    )


def snapshots(run: RunData) -> list[dict[str, Any]]:
    """Return a record for each part of the run (``snapshot``: its last step), student and teacher."""
    if not run.recorded:
        return []
    first, last = run.recorded[0], run.recorded[-1]
    ends = np.unique(np.ceil(np.linspace(first - 1, last, SNAPSHOTS + 1)[1:]).astype(int))
    table = run.table("attempts", ("step", "student", "author", "correct", "void", "filled"))
    table = table.filter(~(pc.field("void") | pc.field("filled")))
    snapshot = ends[np.searchsorted(ends, table["step"].to_numpy())]
    table = table.append_column("snapshot", [snapshot]).append_column("solved", pc.cast(table["correct"], "float64"))
    grouped = table.group_by(["snapshot", "student", "author"]).aggregate([("solved", "mean"), ("solved", "count")])
    names = ["snapshot", "student", "teacher", "solve_rate", "attempts"]
    rows = grouped.select(["snapshot", "student", "author", "solved_mean", "solved_count"]).rename_columns(names).to_pylist()
    return sorted(rows, key=lambda row: (row["snapshot"], member_order(row["student"]), member_order(row["teacher"])))


def _matrix(rows: list[dict[str, Any]], snapshot: int, students: list[str], teachers: list[str]) -> Array:
    values = np.full((len(students), len(teachers)), np.nan)
    for row in rows:
        if row["snapshot"] == snapshot:
            values[students.index(row["student"]), teachers.index(row["teacher"])] = row["solve_rate"]
    return values


def _draw_cross_evaluation(rows: list[dict[str, Any]]) -> Drawing:
    students, teachers = (sorted({row[key] for row in rows}, key=member_order) for key in ("student", "teacher"))
    ends, digits = sorted({row["snapshot"] for row in rows}), 1 if len(teachers) > MOST_WIDE else 2
    drawing, axes = panels(2, len(ends), width=2.0, height=1.9)
    for column, end in enumerate(ends):
        values = _matrix(rows, end, students, teachers)
        for student, line, colour, marker in zip(students, values, cycle(PALETTE), cycle(MARKERS), strict=False):
            style = {"color": colour, "marker": marker, "markersize": 3.5, "linewidth": 1.0, "alpha": 0.85}  # lines may coincide
            tag_artist(axes[0, column].plot(range(len(teachers)), line, label=student, **style)[0], student)
        axes[0, column].set_xticks(range(len(teachers)), teachers)
        axes[0, column].set(ylim=(-0.02, 1.02), title=f"to step {end}")
        heatmap(axes[1, column], values, students, teachers, digits)
    axes[0, 0].set_ylabel("solve rate")
    axes[1, 0].set_ylabel("student")
    drawing.supxlabel("teacher", fontsize=8)
    axes[0, -1].legend(loc="lower left", bbox_to_anchor=(1.0, 0.0))
    return drawing
