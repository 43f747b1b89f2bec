"""The paper's count of cyclomatic complexity beside radon's value, on programs of the run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from populora.core.errors import SandboxUnavailableError
from populora.report.figure import Absent, Figure, Study, shown
from populora.report.loading import RunData
from populora.report.radon import RadonUnavailableError, radon_values

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

NAME, TITLE = "cyclomatic_radon", "Cyclomatic complexity: the paper's count and radon's"
STEPS, PROGRAMS = 10, 30
"""Steps of a run, and written programs of each, that are asked for."""


def cyclomatic_figure(study: Study) -> Figure | Absent:
    """Both values of the first programs of ten steps of each run."""
    rows = [row for arm in study.arms for run in arm.runs for row in _rows(arm.label, run)]
    if not rows:
        return Absent(NAME, TITLE, "there are no valid problems in the runs' tables")
    try:
        values = radon_values(tuple(row["program"] for row in rows))
    except (RadonUnavailableError, SandboxUnavailableError) as error:
        return Absent(NAME, TITLE, str(error))
    compared = [
        {**{name: value for name, value in row.items() if name != "program"}, "radon": value}
        for row, value in zip(rows, values, strict=True)
        if value is not None
    ]
    if not compared:
        return Absent(NAME, TITLE, f"radon can read none of the {len(rows)} programs")
    ours, theirs = (np.array([row[name] for row in compared], dtype=float) for name in ("cyclomatic", "radon"))
    return Figure(
        name=NAME,
        title=TITLE,
        definition=(
            "Ours is the paper's list of branches and, as its printed labels need, comprehensions' for; radon also counts conditional "
            "expressions, comprehensions' if, match and the else of loops. On the first "
            f"{PROGRAMS} written programs of {STEPS} evenly spread steps of each run, {len(compared)} in all: equal on "
            f"{100 * np.mean(ours == theirs):.1f} %, means {ours.mean():.2f} (ours) and {theirs.mean():.2f} (radon). A dot's area, "
            "from a visible one on: how many programs."
        ),
        source="proposals.parquet: step, task, problem_id, cyclomatic; problems.parquet: program, given to radon inside the sandbox",
        shown=shown(study.arms),
        rows=compared,
        draw=lambda: _draw(compared),
    )


def _rows(arm: str, run: RunData) -> list[dict[str, Any]]:
    if not run.recorded:
        return []
    chosen = sorted({run.recorded[int(index)] for index in np.linspace(0, len(run.recorded) - 1, STEPS)})
    found: list[dict[str, Any]] = []
    for step in chosen:
        table = run.table("proposals", ("step", "task", "problem_id", "valid", "cyclomatic"), [step])
        rows = table.filter(pc.field("valid") & (pc.field("task") != "code_f")).slice(0, PROGRAMS).to_pylist()
        contents = run.table("problems", ("problem_id", "program"), [step]).to_pylist()
        programs = {row["problem_id"]: row["program"] for row in contents}
        found += [
            {"arm": arm, "run": run.name, "step": step, "problem_id": row["problem_id"], "cyclomatic": row["cyclomatic"],
             "program": programs[row["problem_id"]]}
            for row in rows
            if row["problem_id"] in programs
        ]  # fmt: skip
    return found


def _draw(rows: list[dict[str, Any]]) -> Drawing:
    from populora.report.drawing import PALE, STUDENT, panels

    drawing, axes = panels(1, 1, width=4.0, height=2.8)
    counts = Counter((row["cyclomatic"], row["radon"]) for row in rows)
    top = max(max(pair) for pair in counts) + 1
    axes[0, 0].plot([0, top], [0, top], color=PALE, linewidth=0.8, linestyle="--")
    places, sizes = np.array(list(counts)), np.maximum(5, 300 * np.array(list(counts.values())) / max(counts.values()))
    axes[0, 0].scatter(places[:, 0], places[:, 1], sizes, color=STUDENT, alpha=0.6, linewidth=0)
    axes[0, 0].set(xlabel="the paper's count", ylabel="radon", xlim=(0, top), ylim=(0, top))
    return drawing
