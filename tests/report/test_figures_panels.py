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

from populora.report.curves import curves_of
from populora.report.figure import Absent, Figure
from populora.report.figures.dynamics import FIGURES
from populora.report.figures.panels import panels_figure
from populora.report.rendering import drawn

SPECS = {spec.name: spec for spec in FIGURES}
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
    figure = panels_figure(study, spec)
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
    assert len(drawn(figure).axes) == len(spec.panels)
    for axis, panel in zip(drawn(figure).axes, spec.panels, strict=True):
        own = [curve.values for curve in curves_of(study.arms, panel.metric, panel.task)]
        if own and not spec.members:
            low, high = np.nanmin(np.concatenate(own)), np.nanmax(np.concatenate(own))
            assert all(low - 1e-9 <= y <= high + 1e-9 for line in axis.lines for y in line.get_ydata() if y == y), "its own metric is drawn"


def test_each_panel_draws_its_own_metric(runs):
    study = study_of(runs["pair"], smooth=1)
    for spec in SPECS.values():
        figure = panels_figure(study, spec)
        for axis, panel in zip(drawn(figure).axes if isinstance(figure, Figure) else (), spec.panels, strict=isinstance(figure, Figure)):
            (whole,) = [curve for curve in curves_of(study.arms, panel.metric, panel.task) if curve.member == "all"] or [None]
            if whole:
                np.testing.assert_array_equal(axis.lines[-1].get_ydata(), whole.values)


def test_single_agents_alone_are_shown(runs):
    figure = panels_figure(study_of(runs["agent"], runs["agent-1"]), SPECS["dynamics"])
    assert isinstance(figure, Figure) and {row["run"] for row in figure.rows} == {"agent", "agent-1"}


def test_every_arm_is_shown_also_of_equal_size(runs, copied):
    other = copied(to="other")
    settings = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**settings, "lora": {**settings["lora"], "rank": 99}}))
    study = study_of(runs["pair"], other, runs["agent"])
    figure = panels_figure(study, SPECS["dynamics"])
    assert isinstance(figure, Figure) and len({row["arm"] for row in figure.rows}) == 3
    assert isinstance(panels_figure(study, SPECS["population_size"]), Absent), "they are of one size"


def test_baselines_are_black_and_the_population_coloured(runs):
    study = study_of(runs["pair"], runs["agent"], runs["agent-1"])
    figure = panels_figure(study, SPECS["dynamics"])
    assert isinstance(figure, Figure)
    for axis in drawn(figure).axes:
        assert [line.get_color() for line in axis.lines] == [arm.colour for arm in study.arms] == ["#1b1b1c", "#0072b2"]
    assert figure.shown == "baseline (1 agent): 2 runs, seeds 0, 1; 2T+2S: 1 run, seed 0; trailing means over 5 steps"


@pytest.mark.parametrize("name", sorted(SPECS.keys() - {"population_size"}))
def test_metrics_that_no_run_has_are_named(runs, copied, name):
    folder = copied()
    metrics = {panel.metric for panel in SPECS[name].panels}
    kept = [{key: value for key, value in line.items() if not key.startswith(tuple(metrics))} for line in logged(folder)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    figure = panels_figure(study_of(folder), SPECS[name])
    assert isinstance(figure, Absent) and figure.reason == f"no run has {', '.join(sorted(metrics))}"


def test_population_sizes_need_two_populations(runs):
    figure = panels_figure(study_of(runs["pair"], runs["agent"]), SPECS["population_size"])
    assert isinstance(figure, Absent) and "give a run of each" in figure.reason
