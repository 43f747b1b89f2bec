"""The operator-retention grids of a `populora retention` folder, drawn as that command draws them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from populora.core.config_file import from_mapping
from populora.core.errors import PopuloraError
from populora.core.files import read_json
from populora.report.figure import Figure, MissingFigure, Study
from populora.runs.directory import CONFIG

if TYPE_CHECKING:
    from populora.evals.retention.settings import RetentionConfig

GRIDS = {
    "live": ("retention_live", "Operator retention: the live eight", "Figure 6 (LoRA operator retention)"),
    "mutations": ("retention_mutations", "Operator retention: mutations", "Figure: mutation-operator retention across snapshot steps"),
    "crossovers": ("retention_crossovers", "Operator retention: crossovers", "Figure: crossover-operator retention across snapshot steps"),
}
DEFINITION = (
    "Pass rates of children from their snapshot on, on the scale of global steps, a thin line for each seed and a thick one for their "
    "mean; the dot is the child at birth. Thin grey: the parents' own curves; thick grey: the frozen parent on the child's problems; "
    "dashed: the control; dotted: an adapter that began anew. Trailing means of 5 steps. The verdicts are in the folder's table.md."
)
_UNREADABLE = (PopuloraError, LookupError, TypeError, AttributeError, ValueError)
"""What reading raises for a file that is missing, damaged, or holds something else."""


def retention_figures(study: Study) -> list[Figure | MissingFigure]:
    """Draw the three grids."""
    if study.retention is None:
        reason = "give the folder of `populora retention` with --retention DIR"
    else:
        try:
            return _figures(study.retention)
        except PopuloraError as error:
            reason = str(error)
        except _UNREADABLE as error:
            reason = f"a file in '{study.retention}' does not hold what `populora retention` writes ({type(error).__name__}: {error})"
    return [MissingFigure(*grid, reason) for grid in GRIDS.values()]


def _figures(folder: Path) -> list[Figure | MissingFigure]:
    """Read and check everything here: drawing happens while the page is made, and must not fail."""
    from populora.evals.retention.figures import drawings  # these load torch
    from populora.evals.retention.grid import read_cells
    from populora.evals.retention.settings import RetentionConfig
    from populora.evals.retention.verdicts import cell_retention

    config = from_mapping(read_json(folder / CONFIG), RetentionConfig)
    cells = read_cells(config, folder)
    for cell in cells:
        cell_retention(config, cell)
        if len(cell["curve"]) != config.retrain_steps:
            raise ValueError(f"expected {config.retrain_steps} steps of seed {cell['seed']}, got {len(cell['curve'])}")
    seeds, snapshots = (sorted({cell[key] for cell in cells}) for key in ("seed", "snapshot"))
    parents, unread = _parent_curves(config, folder, seeds)
    draw, rows = drawings(config, parents, cells), _rows(cells)
    source = f"{folder.name}/cells/*.json: curve, birth; parents/*.json: curve"
    runs = f"{len(cells)} cells: snapshots {', '.join(map(str, snapshots))}; seeds {', '.join(map(str, seeds))}{unread}"
    missing = f"'{folder}' has no finished cells of this kind"
    return [
        Figure(*grid, DEFINITION, source, runs, rows, draw[kind]) if kind in draw else MissingFigure(*grid, missing)
        for kind, grid in GRIDS.items()
    ]


def _parent_curves(config: RetentionConfig, folder: Path, seeds: list[int]) -> tuple[dict[int, Any], str]:
    """Return the parents' curves by seed, and a text about those that cannot be read."""
    from populora.evals.retention.figures import parent_curves

    curves, unread = dict[int, Any](), ""
    for seed in seeds:
        try:
            curves[seed] = parent_curves(config, folder, seed)
        except _UNREADABLE as error:
            unread += f"; without the parents' own curves of seed {seed} ({type(error).__name__}: {error})"
    return curves, unread


def _rows(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the correct answers by cell, trained adapter, step and task."""
    keys = ("seed", "snapshot", "adapter", "step", "task", "correct")
    return [
        dict(zip(keys, (cell["seed"], cell["snapshot"], adapter, index, task, " ".join(map(str, correct))), strict=True))
        for cell in cells
        for index, step in enumerate(cell["curve"])
        for adapter, tasks in step.items()
        for task, correct in tasks.items()
    ]
