"""The grids of a retention folder, from cells written here."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from report_runs import study_of

from populora.evals.retention.settings import RetentionConfig
from populora.report.figure import Figure, MissingFigure
from populora.report.figures.retention_grids import retention_figures
from populora.report.rendering import draw

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
        birth = {name: {task: [1, 2, 3] for task in own} for name, own in {**tasks, "base": GRID.parents}.items()}
        cell = {"seed": seed, "snapshot": 4, "birth": birth, "curve": curve}
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
        {"seed": cell["seed"], "snapshot": 4, "adapter": name, "step": step, "task": task, "correct": " ".join(map(str, counts))}
        for cell in cells
        for step, pupils in enumerate(cell["curve"])
        for name, tasks in pupils.items()
        for task, counts in tasks.items()
    ]
    for figure in found:
        assert isinstance(figure, Figure) and figure.rows == expected and figure.paper
        assert figure.runs == "2 cells: snapshots 4; seeds 0, 1"
    assert draw(found[0])


@pytest.mark.parametrize(("content", "reason"), [
    (None, "cannot read"), ("{", "not valid JSON"), ('{"seed": 1}', "(KeyError: 'curve')"),
    ('{"curve": [{"code_i": {}}]}', "(KeyError: 'code_i')"), ('{"curve": 3}', "(TypeError"),
])  # fmt: skip
def test_parents_that_cannot_be_read_are_left_out_by_name(runs, tmp_path, content, reason):
    """The page draws outside of any guard: what is damaged must be found before."""
    whole = [len(axis.lines) for axis in draw(retention_figures(study_of(runs["pair"], retention=retention(tmp_path / "whole")))[0]).axes]
    folder = retention(tmp_path / "grid")
    file = folder / "parents" / "seed_1.json"
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    for figure in retention_figures(study_of(runs["pair"], retention=folder)):
        assert isinstance(figure, Figure) and reason in figure.runs
        assert figure.runs.startswith("2 cells: snapshots 4; seeds 0, 1; without the parents' own curves of seed 1 (")
        without = [len(axis.lines) for axis in draw(figure).axes]
        if figure.name == "retention_live":
            assert without == [whole[0] - 1, whole[1] - 2], "one thin grey line a task"


def test_grey_lines_are_the_parents_learning_curves(runs, tmp_path):
    folder = retention(tmp_path / "grid")
    for seed in GRID.seeds:
        curve = [{"code_i": {"code_i": [step, seed]}, "code_o": {"code_o": [0, 1]}} for step in range(4)]
        (folder / "parents" / f"seed_{seed}.json").write_text(json.dumps({"seed": seed, "curve": curve}))
    axis = draw(retention_figures(study_of(runs["pair"], retention=folder))[0]).axes[0]
    grey = [np.asarray(line.get_ydata(), float) for line in axis.lines if line.get_color() == "0.7"]
    rates = GRID.parent_prompts * GRID.samples
    np.testing.assert_allclose(grey, [[(step / 2 + seed) / rates for step in range(4)] for seed in GRID.seeds])


@pytest.mark.parametrize(("damage", "reason"), [
    ("none", "--retention DIR"), ("absent", "cannot read"), ("settings", "unknown"), ("cells", "no finished cells"),
    ("cell", "does not hold what `populora retention` writes (KeyError: 'curve')"),
    ("pupil", "does not hold what `populora retention` writes (KeyError: 'm1')"), ("short", "expected 3 steps of seed 0, got 1"),
])  # fmt: skip
def test_why_there_are_no_grids_is_said(runs, tmp_path, damage, reason):
    folder = retention(tmp_path / "grid")
    if damage == "absent":
        (folder / "config.json").unlink()
    elif damage == "settings":
        (folder / "config.json").write_text('{"holodeck": 1}')
    elif damage == "cell":
        (folder / "cells" / "seed_0_step_00004.json").write_text('{"seed": 0, "snapshot": 4}')
    elif damage in ("pupil", "short"):
        file = folder / "cells" / "seed_0_step_00004.json"
        cell = json.loads(file.read_text())
        curve = [{name: own for name, own in step.items() if name != "m1"} for step in cell["curve"]]
        file.write_text(json.dumps({**cell, "curve": curve if damage == "pupil" else cell["curve"][:1]}))
    elif damage == "cells":
        for file in folder.glob("cells/*"):
            file.unlink()
    for found in retention_figures(study_of(runs["pair"], retention=None if damage == "none" else folder)):
        assert isinstance(found, MissingFigure) and reason in found.reason
