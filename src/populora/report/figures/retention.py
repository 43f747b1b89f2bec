"""The operator-retention grids of a `populora retention` folder, drawn as that command draws them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from populora.core.config_file import from_mapping
from populora.core.errors import PopuloraError
from populora.core.files import read_json
from populora.report.figure import Absent, Figure, Study
from populora.report.loading import Array
from populora.runs.directory import CONFIG

if TYPE_CHECKING:
    from populora.evals.retention.settings import RetentionConfig

TITLES = {
    "live": ("retention_live", "Operator retention: the live eight", "Figure 6 (LoRA operator retention)"),
    "mutations": ("retention_mutations", "Operator retention: mutations", "Figure: mutation-operator retention across snapshot steps"),
    "crossovers": ("retention_crossovers", "Operator retention: crossovers", "Figure: crossover-operator retention across snapshot steps"),
}
_MEANING = (
    "Pass rates of children from their snapshot on, on the scale of global steps, a thin line a seed and a thick one for their mean; the "
    "dot is the child at birth. Thin grey: the parents' own curves; thick grey: the frozen parent on the child's problems; dashed: the "
    "control; dotted: an adapter that began anew. Trailing means of 5 steps. The verdicts stand in the folder's table.md."
)
_OTHER = (LookupError, TypeError, AttributeError, ValueError)
"""What reading raises where a file holds something else."""


def retention_figures(study: Study) -> list[Figure | Absent]:
    """The three grids, or why there are none."""
    if study.retention is None:
        reason = "give the folder of `populora retention` with --retention DIR"
        return [Absent(name, title, reason, paper) for name, title, paper in TITLES.values()]
    try:
        return _figures(study.retention)
    except PopuloraError as error:
        reason = str(error)
    except _OTHER as error:
        reason = f"a file in '{study.retention}' does not hold what `populora retention` writes ({type(error).__name__}: {error})"
    return [Absent(name, title, reason, paper) for name, title, paper in TITLES.values()]


def _figures(folder: Path) -> list[Figure | Absent]:
    """Everything is read and checked here: what is drawn later, while the page is made, must not fail."""
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
    seeds = sorted({cell["seed"] for cell in cells})
    parents, unread = _parents(config, folder, seeds)
    drawn, snapshots = drawings(config, parents, cells), sorted({cell["snapshot"] for cell in cells})
    return [
        Figure(
            name,
            title,
            _MEANING,
            f"{folder.name}/cells/*.json: curve, birth; parents/*.json: curve",
            f"{len(cells)} cells: snapshots {', '.join(map(str, snapshots))}; seeds {', '.join(map(str, seeds))}{unread}",
            _rows(cells),
            drawn[kind],
            paper,
        )
        if kind in drawn
        else Absent(name, title, f"'{folder}' has no finished cells of this kind", paper)
        for kind, (name, title, paper) in TITLES.items()
    ]


def _parents(config: RetentionConfig, folder: Path, seeds: list[int]) -> tuple[dict[int, dict[str, Array]], str]:
    """The parents' curves by seed and task, and in words which could not be read."""
    from populora.evals.retention.figures import parent_curves

    found, unread = dict[int, dict[str, Array]](), ""
    for seed in seeds:
        try:
            found[seed] = parent_curves(config, folder, seed)
        except PopuloraError as error:
            unread += f"; without the parents' own curves of seed {seed}: {error}"
        except _OTHER as error:
            unread += f"; without the parents' own curves of seed {seed}: their file holds something else ({type(error).__name__}: {error})"
    return found, unread


def _rows(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Correct answers by cell, pupil, step and task."""
    return [
        {
            "seed": cell["seed"],
            "snapshot": cell["snapshot"],
            "pupil": pupil,
            "step": index,
            "task": task,
            "correct": " ".join(map(str, correct)),
        }
        for cell in cells
        for index, step in enumerate(cell["curve"])
        for pupil, tasks in step.items()
        for task, correct in tasks.items()
    ]
