"""Sampled problems over training, chosen by the paper's rule ("Sample Generated Problems over Training").

Readings: quality 1.0 is a valid problem whose gold value reproduced; the loose bound is `MAX_LINES` lines; the median of two is the lower.
In another domain than Python, lines are what stands for a program's size there, and the order is that of `ordering`.
"""

import textwrap
from itertools import zip_longest
from statistics import fmean
from typing import Any

import pyarrow.compute as pc

from populora.core.types import TaskType
from populora.domains.declaration import Domain
from populora.domains.registry import load_domain
from populora.report.arms import Arm
from populora.report.drawing import Drawing, panels
from populora.report.figure import Figure, MissingFigure, Study
from populora.report.figures.panel_specs import SOUGHT
from populora.report.run_data import RunData
from populora.runs.style import printable

FIGURE = ("samples", "Sampled problems over training", "Figure: generator outputs at matched training steps")
STEPS, PAPER_STEPS = (5, 50, 100, 200), 200
MAX_LINES, MAX_WIDTH = 14, 76
"""Lines of a program, and characters of a drawn line (the CSV has all)."""


def samples_figure(study: Study, domain_name: str) -> Figure | MissingFigure:
    """Draw one problem of each arm at each of four steps, and the most trivial ones at the third."""
    (identity, section), domain = study.within(FIGURE, domain_name), load_domain(domain_name)
    arms = _compared_arms(study)
    rows = [row for arm in arms for row in sampled_programs(arm, domain)]
    if not rows:
        return MissingFigure(*identity, "there are no valid problems in the runs' tables", section)
    labels = [domain.label(metric) for metric in ordering(domain)]
    return Figure(
        *identity,
        definition=(
            f"Not picked by hand: of a step's valid problems whose gold value reproduced, of at most {MAX_LINES} "
            f"{domain.label(domain.shown[0])}, the median by {', then '.join(labels)} and text; at the third step also the first in that "
            f"order, the most trivial. Steps 5, 50, 100 and 200, in a run of other than {PAPER_STEPS} steps at the same shares of it. The "
            "paper stops at step 100, and shows the most trivial problem of the baseline alone and the problems of one teacher."
        ),
        source=f"proposals.parquet: step, author, task, problem_id, rho, {', '.join(domain.metric_names)}; problems.parquet: program",
        runs="the first run of each arm: " + "; ".join(f"{arm.label}: {arm.runs[0].name}, seed {arm.seeds[0]}" for arm in arms),
        rows=rows,
        drawing=lambda: _draw([arm.label for arm in arms], rows, domain),
        domain=section,
    )


def ordering(domain: Domain) -> tuple[str, ...]:
    """Return the three metrics by which problems are ordered: in Python cyclomatic complexity, lines and AST depth, as in the paper."""
    return (*domain.shown[::-1], *(name for name in domain.metric_names if name not in domain.shown))[:3]


def _compared_arms(study: Study) -> tuple[Arm, ...]:
    """Return the first baseline and the population; without a population the first two arms of single agents."""
    if not study.main:
        return study.arms[:2]
    return (*[arm for arm in study.arms if arm.baseline and arm is not study.main][:1], study.main)


def sampled_programs(arm: Arm, domain: Domain) -> list[dict[str, Any]]:
    """Choose problems of one domain of an arm's first run, as records."""
    run, rows = arm.runs[0], list[dict[str, Any]]()
    if not run.recorded or domain.name not in run.config.domains:
        return rows
    scale = max(run.config.steps, run.recorded[-1]) / PAPER_STEPS
    targets = [step * scale for step in STEPS if step * scale <= run.recorded[-1]]
    steps = [min(run.recorded, key=lambda step, target=target: (abs(step - target), step)) for target in targets]
    for step in dict.fromkeys(steps or run.recorded[-1:]):  # in a short run some are equal
        candidates = _candidates(run, step, domain)
        if candidates:
            rows.append({"arm": arm.label, "kind": "median", **candidates[(len(candidates) - 1) // 2]})
        if candidates and steps[2:3] == [step]:
            rows.append({"arm": arm.label, "kind": "most trivial", **candidates[0]})
    return rows


def _candidates(run: RunData, step: int, domain: Domain) -> list[dict[str, Any]]:
    columns = ("step", "author", "task", "problem_id", "rho", *domain.metric_names)
    of_domain = pc.field("task").isin(list(map(str, domain.task_types)))
    chosen = of_domain & pc.field("rho").is_valid() & (pc.field(domain.shown[0]) <= MAX_LINES)
    proposals = run.table("proposals", columns, [step]).filter(chosen)
    problems = run.table("problems", ("problem_id", "program"), [step]).to_pylist()
    programs = {row["problem_id"]: row["program"] for row in problems}
    rows = [{**row, "program": programs[row["problem_id"]]} for row in proposals.to_pylist() if row["problem_id"] in programs]
    return sorted(rows, key=lambda row: tuple(row[name] for name in (*ordering(domain), "program", "problem_id")))


def _draw(arms: list[str], rows: list[dict[str, Any]], domain: Domain) -> Drawing:
    columns = [[row for row in rows if row["arm"] == arm] for arm in arms] if len(arms) > 1 else [rows[0::2], rows[1::2]]
    texts = [[_cut_lines(row["program"]) for row in column] for column in columns]
    heights = [max(map(len, programs)) + 4 for programs in zip_longest(*texts, fillvalue=[])]  # lines of the longest program
    drawing, axes = panels(len(heights), len(columns), width=4.6, height=0.13 * fmean(heights), height_ratios=heights)
    for axis in axes.flat:
        axis.set_axis_off()
    for column, column_rows in enumerate(columns):
        for axis, row, text in zip(axes[:, column], column_rows, texts[column], strict=False):
            title = f"{row['arm']}, step {row['step']}: {row['author']}, {SOUGHT[TaskType(row['task']).kind]}, {row['kind']}"
            axis.set_title(title, parse_math=False)
            measures = " · ".join([*(f"{metric.label} {row[metric.name]}" for metric in domain.metrics), f"rho {row['rho']:.2f}"])
            axis.text(0, 1, measures, fontsize=7, va="top", alpha=0.75, transform=axis.transAxes)
            program = {"family": "monospace", "fontsize": 6.5, "va": "top", "parse_math": False}
            axis.annotate("\n".join(text), (0, 1), (0, -13), xycoords="axes fraction", textcoords="offset points", **program)
    return drawing


def _cut_lines(program: str) -> list[str]:
    if "\n" not in program:  # a statement, which may be long
        return textwrap.wrap(printable(program), MAX_WIDTH)
    return [line if len(line) <= MAX_WIDTH else line[: MAX_WIDTH - 1] + "…" for line in printable(program).expandtabs(4).splitlines()]
