"""Figures of evaluations, from folders of verdicts written here, against counting them by hand."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, stdev

import pytest
from report_runs import study_of

from populora.report.drawing import drawn
from populora.report.figure import Absent, Figure
from populora.report.figures.downstream import downstream_figures
from populora.rng import stream

SOURCES = {"base": "base", "T0": "teacher", "T1": "teacher", "S0": "student", "S1": "student"}
ITEMS = {"aime24": 30, "amc23": 40}


def evaluation(folder: Path, graded: int | None = None) -> Path:
    """Verdicts drawn from a stream; ``graded``: of S1 on amc23 so many alone."""
    rng = stream(0, "report tests", "evaluation")
    for name, items in ITEMS.items():
        (folder / "verdicts" / name).mkdir(parents=True)
        for source in SOURCES:
            count = graded if graded is not None and (name, source) == ("amc23", "S1") else items
            lines = [{"item_id": f"{name}-{index}", "correct": bool(rng.random() < 0.4)} for index in range(count)]
            (folder / "verdicts" / name / f"{source}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    description = {
        "name": "mine", "sources": [{"name": name, "role": role} for name, role in SOURCES.items()],
        "benchmarks": {name: {"path": "x", "sha256": "y", "items": items} for name, items in ITEMS.items()},
        "skipped": {"gsm8k": "its file is not there"},
    }  # fmt: skip
    (folder / "evaluation.json").write_text(json.dumps(description))
    return folder


def right(folder: Path, name: str, source: str) -> list[bool]:
    lines = (folder / "verdicts" / name / f"{source}.jsonl").read_text().splitlines()
    return [json.loads(line)["correct"] for line in lines]


def figures_of_folder(runs, folder: Path, **options) -> list[Figure]:
    found = downstream_figures(study_of(runs["pair"], evaluations=(folder,), **options))
    assert all(isinstance(one, Figure) for one in found)
    return [one for one in found if isinstance(one, Figure)]


def test_bars_are_means_of_roles_with_their_spread_and_rows_have_every_member(runs, tmp_path):
    folder = evaluation(tmp_path / "pair" / "evaluations" / "step_00006")
    bars, adapters = figures_of_folder(runs, folder)
    rates = {(source, name): 100 * fmean(right(folder, name, source)) for source in SOURCES for name in ITEMS}
    headline = {(row["row"], row["column"]): row for row in bars.rows if row["reading"] == "headline"}
    for role in ("Teacher, mean of 2", "Student, mean of 2"):
        for name in ITEMS:
            own = [rates[f"{role[0]}{index}", name] for index in (0, 1)]
            row = headline[role, name]
            assert (row["value"], row["std"]) == pytest.approx((fmean(own), stdev(own)))
    assert {(row["source"], row["benchmark"]): (row["correct"], row["graded"], row["items"]) for row in adapters.rows} == {
        (source, name): (sum(right(folder, name, source)), items, items) for source in SOURCES for name, items in ITEMS.items()
    }
    widths = [patch.get_width() for axis in drawn(adapters).axes for patch in axis.patches]
    assert widths == pytest.approx([rates[source, name] for name in ITEMS for source in SOURCES])
    assert bars.shown == adapters.shown == "pair/step_00006: 5 sources"
    skipped = [row for row in bars.rows if row["kind"] == "skipped"]
    assert [(row["column"], row["remark"]) for row in skipped] == [("gsm8k", "its file is not there")]
    assert bars.tables and drawn(bars)


def test_a_benchmark_graded_in_part_has_no_bar_but_a_row(runs, tmp_path):
    folder = evaluation(tmp_path / "mine", graded=7)
    _, adapters = figures_of_folder(runs, folder)
    row = next(row for row in adapters.rows if (row["source"], row["benchmark"]) == ("S1", "amc23"))
    assert (row["graded"], row["items"]) == (7, 40)
    assert sum(len(axis.patches) for axis in drawn(adapters).axes) == len(SOURCES) * len(ITEMS) - 1


def test_the_papers_table_is_laid_under_ours_only_when_asked_for(runs, tmp_path):
    folder = evaluation(tmp_path / "mine")
    readings = [{row["reading"] for row in figures_of_folder(runs, folder, published=asked)[0].rows} for asked in (False, True)]
    assert "published" not in readings[0] and "published" in readings[1]


@pytest.mark.parametrize(("damage", "reason"), [
    ("none", "--evaluation DIR"), ("absent", "is no evaluation"), ("description", "does not describe an evaluation"),
    ("verdicts", "line 2: expected a verdict"), ("ungraded", "nothing is graded"),
])  # fmt: skip
def test_why_there_are_no_bars_is_said(runs, tmp_path, damage, reason):
    folder = evaluation(tmp_path / "mine")
    if damage == "absent":
        (folder / "evaluation.json").unlink()
    elif damage == "description":
        (folder / "evaluation.json").write_text("{}")
    elif damage == "verdicts":
        file = folder / "verdicts" / "aime24" / "T0.jsonl"
        file.write_text(file.read_text().replace('{"item_id": "aime24-1",', "no", 1))
    elif damage == "ungraded":
        for file in folder.glob("verdicts/*/*"):
            file.unlink()
    for found in downstream_figures(study_of(runs["pair"], evaluations=() if damage == "none" else (folder,))):
        assert isinstance(found, Absent) and reason in found.reason and found.paper
