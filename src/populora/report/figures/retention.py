"""The operator-retention grids of a `populora retention` folder, drawn as that command draws them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from populora.config_file import from_mapping
from populora.errors import PopuloraError
from populora.report.figure import Absent, Figure, Study
from populora.runlog.directory import CONFIG
from populora.runlog.files import read_json

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


def retention_figures(study: Study) -> list[Figure | Absent]:
    """The three grids, or why there are none."""
    if study.retention is None:
        reason = "give the folder of `populora retention` with --retention DIR"
        return [Absent(name, title, reason, paper) for name, title, paper in TITLES.values()]
    try:
        return _figures(study.retention)
    except PopuloraError as error:
        reason = str(error)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        reason = f"a file in '{study.retention}' does not hold what `populora retention` writes ({type(error).__name__}: {error})"
    return [Absent(name, title, reason, paper) for name, title, paper in TITLES.values()]


def _figures(folder: Path) -> list[Figure | Absent]:
    from populora.retention.figures import drawings  # these load torch
    from populora.retention.grid import read_cells
    from populora.retention.settings import RetentionConfig

    config = from_mapping(read_json(folder / CONFIG), RetentionConfig)
    cells = read_cells(config, folder)
    drawn, seeds = drawings(config, folder, cells), sorted({cell["seed"] for cell in cells})
    return [
        Figure(
            name,
            title,
            _MEANING,
            f"{folder.name}/cells/*.json: curve, birth; parents/*.json: curve",
            f"{len(cells)} cells: snapshots {', '.join(map(str, sorted({cell['snapshot'] for cell in cells})))}; seeds "
            f"{', '.join(map(str, seeds))}",
            _rows(cells),
            drawn[kind],
            paper,
        )
        if kind in drawn
        else Absent(name, title, f"'{folder}' has no finished cells of this kind", paper)
        for kind, (name, title, paper) in TITLES.items()
    ]


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
