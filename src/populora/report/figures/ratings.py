"""TrueSkill over training and the alternating lead; who would beat whom, and predicted against observed outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import binomtest

from populora.league.trueskill import win_probability
from populora.report.curves import MEMBER, mean, trailing
from populora.report.figure import Absent, Figure, Row, Study, one_run
from populora.report.loading import Array, RunData
from populora.types import Rating

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

BINS = 10
NEEDS = "it needs a run with teachers and students"


def trueskill_figure(study: Study) -> Figure | Absent:
    """Ratings by role, and which role won the matchups."""
    name, title, paper = "trueskill", "TrueSkill and the arms race", "Figure 5 (TrueSkill and arms race)"
    if not (study.main and study.main.runs[0].metrics.under("rating/mu")):
        return Absent(name, title, NEEDS, paper)
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
        name=name,
        title=title,
        definition=(
            "Left and centre: mu of each member (thin) and the mean of its role (bold), a thin line going on through the replacements at "
            "its place. Right: share of the step's matchups that the students won (blue) and the teachers won (orange), trailing means; "
            "the area has the colour of who leads. A student wins a matchup where mean rho is above what the ratings predicted."
        ),
        source="metrics.jsonl: rating/mu/MEMBER, matchup/student_wins",
        shown=f"{one_run(study.main)}; trailing means over {study.smooth} steps",
        rows=rows,
        draw=lambda: _draw_ratings(run, ratings, trailing(wins, study.smooth)),
        paper=paper,
    )


def win_matrix_figure(study: Study) -> Figure | Absent:
    """Predicted chance of each student against each teacher at the end, and how well predictions came true."""
    name, title = "calibration", "Win probabilities and their calibration"
    games = _games(study) if study.main else []
    if not games or not study.main:
        return Absent(name, title, f"{NEEDS} and finished matchups")
    run, bins = study.main.runs[0], calibration(games)
    matrix, teachers, students = _matrix(run)
    brier = float(np.mean([(game["expected"] - game["won"]) ** 2 for game in games]))
    rows = [{"kind": "bin", **one, "teacher": "", "student": ""} for one in bins]
    blank = dict.fromkeys(bins[0], "")
    rows += [
        {**blank, "kind": "final prediction", "predicted": matrix[i][j], "teacher": teacher, "student": student}
        for i, student in enumerate(students)
        for j, teacher in enumerate(teachers)
    ]
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return Figure(
        name=name,
        title=title,
        definition=(
            "Left: Phi((mu_s - mu_t) / sqrt(2 beta^2 + sigma_s^2 + sigma_t^2)) by the ratings after the last step that has them. Centre: "
            "matchups in bins of what was predicted before they were played; dots: share that the student won, with the exact 95 % "
            "interval of a proportion, as if games were independent. Right: in the same bins the mean rho that the prediction is an "
            f"expectation of. Over {len(games)} games the Brier score is {brier:.3f} (always predicting one half: 0.250). Where the "
            "student wins whenever mean rho is above the prediction, a prediction that is too low wins: the mean rho should lie on the "
            "diagonal, the share won need not."
        ),
        source="matchups.parquet: expected, outcome, mean_rho; ratings.parquet: mu, sigma",
        shown=f"left: {one_run(study.main)}; centre and right: all {len(study.main.runs)} runs of {study.main.label}",
        rows=[{key: row.get(key, "") for key in keys} for row in rows],
        draw=lambda: _draw_matrix(matrix, teachers, students, bins),
    )


def calibration(games: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Games in `BINS` equal bins of ``expected``: their number, mean prediction, share won with an exact interval, mean rho."""
    found = []
    for index in range(BINS):
        own = [game for game in games if min(int(game["expected"] * BINS), BINS - 1) == index]
        if own:
            won = sum(game["won"] for game in own)
            interval = binomtest(won, len(own)).proportion_ci(0.95)
            found.append({
                "games": len(own), "predicted": float(np.mean([game["expected"] for game in own])), "won": won / len(own),
                "low": float(interval.low), "high": float(interval.high), "mean_rho": float(np.mean([game["mean_rho"] for game in own])),
            })  # fmt: skip
    return found


def _games(study: Study) -> list[dict[str, Any]]:
    columns = ("expected", "mean_rho", "outcome")
    tables = [run.table("matchups", columns).drop_null().to_pylist() for run in (study.main.runs if study.main else ())]
    return [{**row, "won": row["outcome"] == "student"} for table in tables for row in table if row["outcome"] != "none"]


def _ratings(run: RunData) -> dict[str, Array]:
    return {member: run.metrics.get(f"rating/mu/{member}") for member in run.metrics.under("rating/mu") if MEMBER.fullmatch(member)}


def _matrix(run: RunData) -> tuple[list[list[float]], list[str], list[str]]:
    """Students' chances [students, teachers], and who they are."""
    tables = (run.table("ratings", ("member", "role", "mu", "sigma"), [step]).to_pylist() for step in reversed(run.recorded))
    last: dict[str, Row] = {row["member"]: row for row in next(filter(None, tables), [])}
    teachers, students = ([name for name, row in last.items() if row["role"] == role] for role in ("teacher", "student"))
    beta = run.setting("league.beta", 25 / 6)
    rated = {name: Rating(row["mu"], row["sigma"]) for name, row in last.items()}
    return [[win_probability(rated[s], rated[t], beta) for t in teachers] for s in students], teachers, students


def _draw_ratings(run: RunData, ratings: dict[str, Array], wins: Array) -> Drawing:
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


def _draw_matrix(matrix: list[list[float]], teachers: list[str], students: list[str], bins: list[dict[str, Any]]) -> Drawing:
    from populora.report.drawing import PALE, STUDENT, heat, panels

    drawing, axes = panels(1, 3, width=3.2, height=2.6)
    if teachers and students:  # the tables of ratings may be gone where those of matchups are not
        heat(axes[0, 0], matrix, students, teachers)
    axes[0, 0].set_title("P(student wins), at the end")
    predicted = [one["predicted"] for one in bins]
    errors = [[one["won"] - one["low"] for one in bins], [one["high"] - one["won"] for one in bins]]
    for axis in axes[0, 1:]:
        axis.plot([0, 1], [0, 1], color=PALE, linewidth=0.8, linestyle="--")
        axis.set(xlim=(0, 1), ylim=(-0.04, 1.08), xlabel="predicted")
    axes[0, 0].set(xlabel="teacher", ylabel="student")
    axes[0, 1].errorbar(predicted, [one["won"] for one in bins], errors, fmt="o", color=STUDENT, markersize=4, elinewidth=0.8)
    for one in bins:
        axes[0, 1].annotate(str(one["games"]), (one["predicted"], one["won"]), (3, 3), textcoords="offset points", fontsize=6)
    axes[0, 1].set_title("observed: share won (games)")
    axes[0, 2].plot(predicted, [one["mean_rho"] for one in bins], "o", color=STUDENT, markersize=4)
    axes[0, 2].set_title("observed: mean rho")
    return drawing
