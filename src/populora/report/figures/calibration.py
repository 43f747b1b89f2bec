"""Who would beat whom by the ratings at the end, and predicted against observed outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import binomtest

from populora.core.types import Rating
from populora.report.figure import Absent, Figure, Row, Study, one_run, shown
from populora.report.loading import RunData
from populora.training.ratings import win_probability

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

NAME, TITLE = "calibration", "Win probabilities and their calibration"
BINS = 10


def calibration_figure(study: Study) -> Figure | Absent:
    """Predicted chance of each student against each teacher at the end, and how well predictions came true."""
    games = _games(study) if study.main else []
    if not games or not study.main:
        return Absent(NAME, TITLE, "it needs a run with teachers and students and finished matchups")
    run, bins = study.main.runs[0], calibrated(games)
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
        name=NAME,
        title=TITLE,
        definition=(
            "Left: Phi((mu_s - mu_t) / sqrt(2 beta^2 + sigma_s^2 + sigma_t^2)) by the ratings after the last step that has them. Centre: "
            "matchups in bins of what was predicted before they were played; dots: share that the student won, with the exact 95 % "
            "interval of a proportion, as if games were independent. Right: in the same bins the mean rho that the prediction is an "
            f"expectation of. Over {len(games)} games the Brier score is {brier:.3f} (always predicting one half: 0.250). Where the "
            "student wins whenever mean rho is above the prediction, a prediction that is too low wins: the mean rho should lie on the "
            "diagonal, the share won need not."
        ),
        source="matchups.parquet: expected, outcome, mean_rho; ratings.parquet: mu, sigma",
        shown=f"left: {one_run(study.main)}; centre and right: {shown((study.main,))}",
        rows=[{key: row.get(key, "") for key in keys} for row in rows],
        draw=lambda: _draw(matrix, teachers, students, bins),
    )


def calibrated(games: list[dict[str, Any]]) -> list[dict[str, Any]]:
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


def _matrix(run: RunData) -> tuple[list[list[float]], list[str], list[str]]:
    """Students' chances [students, teachers], and who they are."""
    tables = (run.table("ratings", ("member", "role", "mu", "sigma"), [step]).to_pylist() for step in reversed(run.recorded))
    last: dict[str, Row] = {row["member"]: row for row in next(filter(None, tables), [])}
    teachers, students = ([name for name, row in last.items() if row["role"] == role] for role in ("teacher", "student"))
    beta = run.setting("league.beta", 25 / 6)
    rated = {name: Rating(row["mu"], row["sigma"]) for name, row in last.items()}
    return [[win_probability(rated[s], rated[t], beta) for t in teachers] for s in students], teachers, students


def _draw(matrix: list[list[float]], teachers: list[str], students: list[str], bins: list[dict[str, Any]]) -> Drawing:
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
