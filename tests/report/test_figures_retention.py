"""The grids of a retention folder, from cells written here."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from report_runs import study_of

from populora.report.drawing import drawn
from populora.report.figure import Absent, Figure
from populora.report.figures.retention import retention_figures
from populora.retention.settings import RetentionConfig

GRID = RetentionConfig(
    parents=("code_i", "code_o"), seeds=(0, 1), snapshots=(4,), repeated=4, retrain_steps=3, operators=("m1", "x2"), prompts=2, samples=4,
    birth_problems=3, window=2,
)  # fmt: skip


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
