"""Figures that are panels of metrics over steps: their rows are recomputed here from the Parquet tables, definition by definition."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from report_runs import logged, study_of, table

from populora.report.drawing import curves_of
from populora.report.figure import Figure, MissingFigure
from populora.report.figures.metric_panels import PANEL_FIGURES, panel_figures
from populora.report.rendering import draw

SPECS = {spec.name: spec for spec in PANEL_FIGURES}
Sample = tuple[int, str, str, float, int]
"""(step, member, type, value, weight)."""
PROPOSALS = {
    "teacher/validity": lambda row: row["valid"],
    "teacher/difficulty": lambda row: None if row["rho"] is None else 1 - row["rho"],
    "teacher/rho_zero": lambda row: None if row["rho"] is None else row["rho"] == 0,
    "teacher/rho_one": lambda row: None if row["rho"] is None else row["rho"] == 1,
    "teacher/response_length": lambda row: row["response_tokens"],
    "teacher/entropy": lambda row: row["entropy"],
    "teacher/duplicates": lambda row: row["repeat"] if row["task"] != "code_f" else None,
    **{f"teacher/{name}": (lambda row, name=name: row[name] if row["task"] != "code_f" else None)
       for name in ("ast_depth", "cyclomatic", "loc", "variables")},
}  # fmt: skip
ATTEMPTS = {
    "student/solve_rate": lambda row: row["correct"],
    "student/format_rate": lambda row: row["formatted"],
    "student/response_length": lambda row: row["response_tokens"],
    "student/entropy": lambda row: row["entropy"],
    "student/clipped": lambda row: not row["stopped"],
    "student/lenient_solved": lambda row: row["lenient"] and row["correct"],
    "teacher/rho_format_fail": lambda row: not row["formatted"],
}
GROUPS = {"teacher/zero_variance": ("proposals", "author", "group"), "student/zero_variance": ("attempts", "student", "problem_id")}


def samples(run: Path, metric: str) -> Iterator[Sample]:
    """What a metric is the mean of, from the tables alone."""
    if metric in PROPOSALS:
        found = ((row["author"], row, PROPOSALS[metric](row)) for row in table(run, "proposals"))
    elif metric in ATTEMPTS:
        by = "author" if metric.startswith("teacher/") else "student"
        counted = [row for row in table(run, "attempts") if not row["void"] and not row["filled"]]
        found = ((row[by], row, ATTEMPTS[metric](row)) for row in counted)
    elif metric == "student/void":
        found = ((row["student"], row, row["void"]) for row in table(run, "attempts"))
    else:
        found = zero_variance(run, *GROUPS[metric])
    by_token = metric.endswith("/entropy")
    return ((row["step"], member, row["task"], float(value), row["response_tokens"] if by_token else 1)
            for member, row, value in found if value is not None)  # fmt: skip


def zero_variance(run: Path, name: str, member: str, group: str) -> Iterator[tuple[str, Any, bool]]:
    groups = defaultdict(list)
    for row in table(run, name):
        if row.get("trained", True) and row["reward"] is not None:
            groups[row["step"], row[member], row[group]].append(row)
    for rows in groups.values():
        if len(rows) > 1:
            yield rows[0][member], rows[0], len({row["reward"] for row in rows}) == 1


def expected(run: Path, metric: str, task: str) -> dict[tuple[str, int], float]:
    """Values by member (``all``: the run's own) and step."""
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    if metric.startswith("learner/"):
        for line in logged(run):
            for name in ("T0", "T1", "S0", "S1", "A0"):
                if f"{metric}/{name}" in line:
                    found[name, int(line["step"])].append(line[f"{metric}/{name}"])
                    found["all", int(line["step"])].append(line[f"{metric}/{name}"])
    else:
        for step, member, own, value, weight in samples(run, metric):
            if own == task or not task:
                found[member, step] += [value] * weight
                found["all", step] += [value] * weight
    return {key: fmean(values) for key, values in found.items()}


def study_with(runs: dict[str, Path], name: str):
    """Two populations for the figure that compares sizes, two arms else."""
    return study_of(runs["pair"], runs["pair-1"], runs["agent"], *([runs["larger"]] if name == "population_size" else []))


@pytest.mark.parametrize("name", SPECS)
def test_rows_are_what_the_tables_say(runs, copied, name):
    spec = SPECS[name]
    if name == "population_size":
        larger = copied("pair", "larger")
        settings = json.loads((larger / "config.json").read_text())
        (larger / "config.json").write_text(json.dumps({**settings, "population": {**settings["population"], "teachers": 3}}))
        runs = {**runs, "larger": larger}
    study = study_with(runs, name)
    figure = panel_figures(study)[spec.name]
    assert isinstance(figure, Figure)
    found = {(row["run"], row["metric"], row["member"], row["step"]): row["value"] for row in figure.rows}
    assert len(found) == len(figure.rows), "a value has one row"
    ours = {
        (run.name, metric, member, step): value
        for arm in study.arms
        for run in arm.runs
        for panel in spec.panels
        for metric in ["/".join(filter(None, (panel.metric, panel.task)))]
        for (member, step), value in expected(runs[run.name], panel.metric, panel.task).items()
    }
    assert found == pytest.approx(ours)
    assert {row["arm"] for row in figure.rows} == {arm.label for arm in study.arms}
    assert len(draw(figure).axes) == len(spec.panels)


def test_each_panel_draws_its_own_metric(runs):
    study = study_of(runs["pair"], smooth=1)
    for spec in SPECS.values():
        figure = panel_figures(study)[spec.name]
        for axis, panel in zip(draw(figure).axes if isinstance(figure, Figure) else (), spec.panels, strict=isinstance(figure, Figure)):
            (whole,) = [curve for curve in curves_of(study.arms, panel.metric, panel.task) if curve.member == "all"] or [None]
            if whole:
                np.testing.assert_array_equal(axis.lines[-1].get_ydata(), whole.values)


def test_population_sizes_need_two_populations(runs):
    figure = panel_figures(study_of(runs["pair"], runs["agent"]))["population_size"]
    assert isinstance(figure, MissingFigure) and "give a run of each" in figure.reason
