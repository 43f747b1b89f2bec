"""The grids of a retention folder, from cells written here."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from report_runs import study_of

from populora.core.errors import ConfigError
from populora.evals.retention.grid import read_cells
from populora.evals.retention.recovery_curves import COLOURS, drawings, parent_curves
from populora.evals.retention.settings import RetentionConfig
from populora.report.figure import Figure, MissingFigure
from populora.report.figures.retention_grids import retention_figures

GRID = RetentionConfig(
    parents=("code_i", "code_o"), seeds=(0, 1), snapshots=(4,), repeated=4, retrain_steps=3, operators=("m1", "x2"), prompts=2, samples=4,
    initial_problems=3, window=2,
)  # fmt: skip


def retention(folder: Path) -> Path:
    """Two cells of a small grid, whose counts tell the adapter, step and task."""
    adapters = {"m1": 1, "copy_parent": 1, "x2": 2, "linear_0_5": 2, "fresh_1": 1, "fresh_2": 2, "parent_1": 1, "parent_2": -1}
    tasks = {name: GRID.parents[:of] if of > 0 else GRID.parents[1:] for name, of in adapters.items()}
    for seed in GRID.seeds:
        curve = [{name: {task: [(index + step + seed) % 5, step] for task in names} for index, (name, names) in enumerate(tasks.items())}
                 for step in range(3)]  # fmt: skip
        initial = {name: {task: [1, 2, 3] for task in names} for name, names in {**tasks, "base": GRID.parents}.items()}
        cell = {"seed": seed, "snapshot": 4, "initial": initial, "curve": curve}
        parents = {"seed": seed, "curve": [{task: {task: [1, 2]} for task in GRID.parents}] * 4}
        for name, content in ((f"cells/seed_{seed}_step_00004.json", cell), (f"parents/seed_{seed}.json", parents)):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(json.dumps(content))
    (folder / "config.json").write_text(json.dumps(asdict(GRID)))
    return folder


def test_retention_rows_are_the_counts_of_the_cells(runs, tmp_path):
    folder = retention(tmp_path / "grid")
    figures = retention_figures(study_of(runs["pair"], retention=folder))
    assert [figure.name for figure in figures] == ["retention_live", "retention_mutations", "retention_crossovers"]
    cells = [json.loads(file.read_text()) for file in sorted(folder.glob("cells/*"))]
    expected = [
        {"seed": cell["seed"], "snapshot": 4, "adapter": name, "step": step, "task": task, "correct": " ".join(map(str, counts))}
        for cell in cells
        for step, adapters in enumerate(cell["curve"], 5)  # the step after the snapshot
        for name, tasks in adapters.items()
        for task, counts in tasks.items()
    ]
    for figure in figures:
        assert isinstance(figure, Figure) and figure.rows == expected and figure.paper
        assert figure.runs == "2 cells: snapshots 4; seeds 0, 1"
    assert figures[0].draw()


def test_a_child_is_drawn_from_the_step_after_its_snapshot_on_the_scale_of_its_parent(tmp_path):
    """The first rate of a curve is that before its first update: of a parent in step 1, of a child in the step after its snapshot."""
    folder = retention(tmp_path / "grid")
    parents = {seed: parent_curves(GRID, folder, seed) for seed in GRID.seeds}
    drawn = drawings(GRID, parents, read_cells(GRID, folder))
    assert list(drawn) == ["mutations", "crossovers", "live"]
    for panel in drawn["mutations"]().axes[:2]:
        places = [(line.get_color(), line.get_marker(), np.asarray(line.get_xdata()).tolist()) for line in panel.lines]
        assert places.count(("0.7", "None", [1, 2, 3, 4])) == len(GRID.seeds)  # the parents, trained up to their last snapshot
        assert [steps for _, marker, steps in places if marker == "o"] == [[4]]  # before its first step
        assert {tuple(steps) for colour, marker, steps in places if (colour, marker) != ("0.7", "None") and marker != "o"} == {(5, 6, 7)}


def test_a_panel_has_the_means_over_the_cells_of_its_snapshot_of_child_control_fresh_adapter_and_frozen_parent(tmp_path):
    folder = retention(tmp_path / "grid")
    cells = read_cells(GRID, folder)
    for cell in cells:
        cell["initial"]["m1"]["code_i"], cell["initial"]["x2"]["code_o"] = [3, 3, 3], [0, 1, 0]
    later = {**cells[0], "snapshot": 9, "curve": cells[0]["curve"][::-1]}
    parents = {seed: parent_curves(GRID, folder, seed) for seed in GRID.seeds}
    drawn = drawings(replace(GRID, snapshots=(4, 9)), parents, [*cells, later])

    def expected(of: list, name: str, task: str, problems: int) -> list[float]:
        rates = [[sum(step[name][task][:problems]) / (problems * GRID.samples) for step in cell["curve"]] for cell in of]
        return [fmean(fmean(curve[: end + 1]) for curve in rates) for end in range(3)]  # of three steps all are in a trailing mean

    shown = {
        "mutations": ({"code_i": (COLOURS[0], "parent_1", 0.75)}, ("m1", "copy_parent", "fresh_1")),
        "crossovers": (
            {"code_i": (COLOURS[0], "parent_1", 0.5), "code_o": (COLOURS[1], "parent_2", 1 / 12)}, ("x2", "linear_0_5", "fresh_2"),
        ),
    }  # fmt: skip
    for title, (tasks, names) in shown.items():
        panels, problems = drawn[title]().axes[:2], GRID.prompts // len(tasks)
        for panel, of in zip(panels, (cells, [later]), strict=True):
            lines = {(line.get_color(), line.get_linestyle(), line.get_linewidth()): line.get_ydata() for line in panel.lines[::-1]}
            frozen = [line.get_ydata() for line in panel.lines if line.get_color() == "0.6"]
            dots = [float(line.get_ydata()[0]) for line in panel.lines if line.get_marker() == "o"]
            assert dots == pytest.approx([initial for _, _, initial in tasks.values()])
            for (task, (colour, parent, _)), thick in zip(tasks.items(), frozen, strict=True):
                np.testing.assert_allclose(thick, expected(of, parent, task, problems))
                for name, style in zip(names, (("-", 1.6), ("--", 0.9), (":", 0.9)), strict=True):
                    np.testing.assert_allclose(lines[colour, *style], expected(of, name, task, problems))


def test_without_cells_there_are_no_grids_and_a_damaged_folder_is_an_error(runs, tmp_path):
    folder = retention(tmp_path / "grid")
    for file in folder.glob("cells/*"):
        file.unlink()
    for grid, reason in ((None, "--retention DIR"), (folder, "no finished cells")):
        for figure in retention_figures(study_of(runs["pair"], retention=grid)):
            assert isinstance(figure, MissingFigure) and reason in figure.reason
    (folder / "config.json").write_text('{"holodeck": 1}')
    with pytest.raises(ConfigError, match="unknown setting 'holodeck'"):
        retention_figures(study_of(runs["pair"], retention=folder))
