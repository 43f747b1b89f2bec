"""Sampled problems over training, chosen by the paper's rule ("Sample Generated Problems over Training").

At a step the programs are sorted by cyclomatic complexity, lines, AST depth and text, and the one in the middle (the lower one of two) is
taken; at the third of the four steps also the first one, the most trivial. Readings: quality 1.0 is a valid problem whose gold value
reproduced (it has a rho); the loose bound is `MOST_LINES` lines; a run shorter than the paper's has its steps at the same shares. The paper
shows steps 5, 50 and 100, the most trivial problem of the baseline alone, and one teacher of its population: step 200, the population's
most trivial one, and the choice over all teachers are ours.
"""

from __future__ import annotations

from itertools import zip_longest
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from populora.core.errors import SandboxUnavailableError
from populora.report.arms import Arm
from populora.report.figure import Absent, Figure, Study
from populora.report.loading import RunData
from populora.report.radon import RadonUnavailableError, radon_values

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

NAME, TITLE, PAPER = "samples", "Sampled problems over training", "Figure: generator outputs at matched training steps"
STEPS, OF = (5, 50, 100, 200), 200
MOST_LINES, WIDEST = 14, 76
"""Lines of a program, and characters of a drawn line (the CSV has all)."""
ASKED = {"code_i": "infer-input", "code_o": "infer-output", "code_f": "infer-function"}


def samples_figure(study: Study) -> Figure | Absent:
    """One problem an arm at each of four steps, and the most trivial ones at the third."""
    arms = _beside(study)
    rows = with_radon([row for arm in arms for row in samples(arm)])
    if not rows:
        return Absent(NAME, TITLE, "there are no valid problems in the runs' tables", PAPER)
    return Figure(
        name=NAME,
        title=TITLE,
        definition=(
            f"Not picked by hand: of a step's valid problems whose gold value reproduced, of at most {MOST_LINES} lines, the median by "
            "cyclomatic complexity, then lines, AST depth and text; at the third step also the first in that order, the most trivial. "
            f"Steps 5, 50, 100 and 200, in a run of other than {OF} steps at the same shares of it. Other than in the paper: it stops at "
            "step 100, shows the most trivial problem of the baseline alone, and the problems of one teacher of its population; here they "
            "are chosen over all teachers."
        ),
        source="proposals.parquet: step, author, task, problem_id, rho, ast_depth, cyclomatic, loc; problems.parquet: program",
        shown="the first run of each arm: " + "; ".join(f"{arm.label}: {arm.runs[0].name}, seed {arm.seeds[0]}" for arm in arms),
        rows=rows,
        draw=lambda: _draw([arm.label for arm in arms], rows),
        paper=PAPER,
    )


def _beside(study: Study) -> tuple[Arm, ...]:
    """The first baseline and the population; without one of them the other, or the first two arms of single agents."""
    if not study.main:
        return study.arms[:2]
    return (*[arm for arm in study.arms if arm.baseline and arm is not study.main][:1], study.main)


def samples(arm: Arm) -> list[dict[str, Any]]:
    """The chosen problems of an arm's first run."""
    run, rows = arm.runs[0], list[dict[str, Any]]()
    if not run.recorded:
        return rows
    length = max(run.setting("steps", 0), run.recorded[-1])
    steps = [
        min(run.recorded, key=lambda one: (abs(one - step * length / OF), one)) for step in STEPS if step * length / OF <= run.recorded[-1]
    ]
    for step in dict.fromkeys(steps or run.recorded[-1:]):  # some are the same in a short run
        found = _ordered(run, step)
        if found:
            rows.append({"arm": arm.label, "kind": "median", **found[(len(found) - 1) // 2]})
        if found and steps[2:3] == [step]:
            rows.append({"arm": arm.label, "kind": "most trivial", **found[0]})
    return rows


def with_radon(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with radon's cyclomatic complexity, or why it is not there."""
    try:
        values = radon_values(tuple(row["program"] for row in rows))
    except (RadonUnavailableError, SandboxUnavailableError) as error:
        return [{**row, "radon": f"not here: {error}"} for row in rows]
    return [{**row, "radon": value} for row, value in zip(rows, values, strict=True)]


def _ordered(run: RunData, step: int) -> list[dict[str, Any]]:
    columns = ("step", "author", "task", "problem_id", "rho", "ast_depth", "cyclomatic", "loc", "variables")
    table = run.table("proposals", columns, [step])
    table = table.filter(pc.field("rho").is_valid() & (pc.field("loc") <= MOST_LINES))
    programs = dict(
        zip(
            *(run.table("problems", ("problem_id", "program"), [step])[name].to_pylist() for name in ("problem_id", "program")), strict=True
        )
    )
    rows = [{**row, "program": programs[row["problem_id"]]} for row in table.to_pylist() if row["problem_id"] in programs]
    return sorted(rows, key=lambda row: (row["cyclomatic"], row["loc"], row["ast_depth"], row["program"], row["problem_id"]))


def _draw(arms: list[str], rows: list[dict[str, Any]]) -> Drawing:
    from populora.report.drawing import panels

    columns = [[row for row in rows if row["arm"] == arm] for arm in arms] if len(arms) > 1 else [rows[0::2], rows[1::2]]
    texts = [[_lines(row["program"]) for row in column] for column in columns]
    lines = [max(map(len, beside)) + 4 for beside in zip_longest(*texts, fillvalue=[])]  # a row is as high as its longest program
    drawing, axes = panels(len(lines), len(columns), width=4.6, height=0.13 * fmean(lines), height_ratios=lines)
    for axis in axes.flat:
        axis.set_axis_off()
    for column, own in enumerate(columns):
        for axis, row, text in zip(axes[:, column], own, texts[column], strict=False):
            axis.set_title(f"{row['arm']}, step {row['step']}: {row['author']}, {ASKED[row['task']]}, {row['kind']}", parse_math=False)
            cyclomatic = f"cyclomatic {row['cyclomatic']} (radon {_number(row['radon'])})"
            measures = f"AST depth {row['ast_depth']} · {cyclomatic} · {row['loc']} LOC · rho {row['rho']:.2f}"
            axis.text(0, 1, measures, fontsize=7, va="top", alpha=0.75, transform=axis.transAxes)
            program = {"family": "monospace", "fontsize": 6.5, "va": "top", "parse_math": False}
            axis.annotate("\n".join(text), (0, 1), (0, -13), xycoords="axes fraction", textcoords="offset points", **program)
    return drawing


def _lines(program: str) -> list[str]:
    from populora.runs.style import printable

    return [line if len(line) <= WIDEST else line[: WIDEST - 1] + "…" for line in printable(program).expandtabs(4).splitlines()]


def _number(value: object) -> str:
    return str(value) if isinstance(value, int) else "–"
