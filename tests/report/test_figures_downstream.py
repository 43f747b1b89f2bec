"""Figures of evaluations and of the retention benchmark, from folders written here, against counting their files by hand."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, stdev

import pytest
from report_runs import study_of

from populora.report.drawing import drawn
from populora.report.figure import Absent, Figure
from populora.report.figures.downstream import downstream_figures
from populora.report.figures.retention import retention_figures
from populora.retention.settings import RetentionConfig
from populora.rng import stream

SOURCES = {"base": "base", "T0": "teacher", "T1": "teacher", "S0": "student", "S1": "student"}
ITEMS = {"aime24": 30, "amc23": 40}
GRID = RetentionConfig(
    parents=("code_i", "code_o"), seeds=(0, 1), snapshots=(4,), repeated=4, retrain_steps=3, operators=("m1", "x2"), prompts=2, samples=4,
    birth_problems=3, window=2,
)  # fmt: skip


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
    heights = [patch.get_height() for patch in drawn(adapters).axes[0].patches]
    assert heights == pytest.approx([rates[source, name] for source in SOURCES for name in ITEMS])
    assert bars.shown == adapters.shown == "pair/step_00006: 5 sources"
    skipped = [row for row in bars.rows if row["kind"] == "skipped"]
    assert [(row["column"], row["remark"]) for row in skipped] == [("gsm8k", "its file is not there")]
    assert bars.tables and drawn(bars)


def test_a_benchmark_graded_in_part_has_no_bar_but_a_row(runs, tmp_path):
    folder = evaluation(tmp_path / "mine", graded=7)
    _, adapters = figures_of_folder(runs, folder)
    row = next(row for row in adapters.rows if (row["source"], row["benchmark"]) == ("S1", "amc23"))
    assert (row["graded"], row["items"]) == (7, 40)
    assert len(drawn(adapters).axes[0].patches) == len(SOURCES) * len(ITEMS) - 1


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


def retention(folder: Path) -> Path:
    """Two cells of a small grid, whose counts say which pupil, step and task they are of."""
    pupils = {"m1": 1, "copy_parent": 1, "x2": 2, "linear_0_5": 2, "fresh_1": 1, "fresh_2": 2, "parent_1": 1, "parent_2": -1}
    tasks = {name: GRID.parents[:of] if of > 0 else GRID.parents[1:] for name, of in pupils.items()}
    for seed in GRID.seeds:
        curve = [{name: {task: [(index + step + seed) % 5, step] for task in own} for index, (name, own) in enumerate(tasks.items())}
                 for step in range(3)]  # fmt: skip
        cell = {"seed": seed, "snapshot": 4, "birth": {name: {task: [1, 2, 3] for task in own} for name, own in tasks.items()},
                "curve": curve}  # fmt: skip
        parents = {"seed": seed, "curve": [{task: {task: [1, 2]} for task in GRID.parents}] * 4}
        for name, content in ((f"cells/seed_{seed}_step_00004.json", cell), (f"parents/seed_{seed}.json", parents)):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(json.dumps(content))
    (folder / "config.json").write_text(json.dumps(asdict(GRID)))
    return folder


def test_retention_rows_are_the_counts_of_the_cells(runs, tmp_path):
    folder = retention(tmp_path / "grid")
    found = retention_figures(study_of(runs["pair"], retention=folder))
    assert [one.name for one in found] == ["retention_live", "retention_mutations", "retention_crossovers"]
    cells = [json.loads(file.read_text()) for file in sorted(folder.glob("cells/*"))]
    expected = [
        {"seed": cell["seed"], "snapshot": 4, "pupil": pupil, "step": step, "task": task, "correct": " ".join(map(str, counts))}
        for cell in cells
        for step, pupils in enumerate(cell["curve"])
        for pupil, tasks in pupils.items()
        for task, counts in tasks.items()
    ]
    for figure in found:
        assert isinstance(figure, Figure) and figure.rows == expected and figure.paper
        assert figure.shown == "2 cells: snapshots 4; seeds 0, 1"
    assert drawn(found[0])


def test_a_grid_without_its_repeated_snapshot_has_no_live_operators_yet(runs, tmp_path):
    folder = retention(tmp_path / "grid")
    (folder / "config.json").write_text(json.dumps(asdict(replace(GRID, snapshots=(4, 9), repeated=9))))
    live, mutations, crossovers = retention_figures(study_of(runs["pair"], retention=folder))
    assert isinstance(live, Absent) and "no finished cells" in live.reason
    assert isinstance(mutations, Figure) and isinstance(crossovers, Figure) and drawn(mutations)


@pytest.mark.parametrize(("damage", "reason"), [
    ("none", "--retention DIR"), ("absent", "cannot read"), ("settings", "unknown"), ("cells", "no finished cells"),
    ("cell", "does not hold what `populora retention` writes (KeyError: 'curve')"),
])  # fmt: skip
def test_why_there_are_no_grids_is_said(runs, tmp_path, damage, reason):
    folder = retention(tmp_path / "grid")
    if damage == "absent":
        (folder / "config.json").unlink()
    elif damage == "settings":
        (folder / "config.json").write_text('{"holodeck": 1}')
    elif damage == "cell":
        (folder / "cells" / "seed_0_step_00004.json").write_text('{"seed": 0, "snapshot": 4}')
    elif damage == "cells":
        for file in folder.glob("cells/*"):
            file.unlink()
    for found in retention_figures(study_of(runs["pair"], retention=None if damage == "none" else folder)):
        assert isinstance(found, Absent) and reason in found.reason
