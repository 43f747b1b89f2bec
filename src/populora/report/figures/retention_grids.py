"""The operator-retention grids of a `populora retention` folder, drawn as that command draws them."""

from typing import Any

from populora.core.config_file import from_mapping
from populora.core.files import read_json
from populora.report.figure import Figure, MissingFigure, Study
from populora.runs.directory import CONFIG

GRIDS = {
    "live": ("retention_live", "Operator retention: the live eight", "Figure 6 (LoRA operator retention)"),
    "mutations": ("retention_mutations", "Operator retention: mutations", "Figure: mutation-operator retention across snapshot steps"),
    "crossovers": ("retention_crossovers", "Operator retention: crossovers", "Figure: crossover-operator retention across snapshot steps"),
}
DEFINITION = (
    "Pass rates of children from the step after their snapshot on, on the scale of global steps, a thin line for each seed and a thick one "
    "for their mean; the dot is the child before its first step. Thin grey: the parents' own curves; thick grey: the frozen parent on the "
    "child's problems; dashed: the control; dotted: an adapter that began anew. Trailing means of 5 steps. The verdicts are in the "
    "folder's table.md."
)


def retention_figures(study: Study) -> list[Figure | MissingFigure]:
    """Draw the three grids. Raises `PopuloraError` for a folder with damaged files."""
    if study.retention is None:
        reason = "give the folder of `populora retention` with --retention DIR"
        return [MissingFigure(*grid, reason) for grid in GRIDS.values()]
    from populora.evals.retention.grid import read_cells
    from populora.evals.retention.recovery_curves import drawings, parent_curves  # these load torch
    from populora.evals.retention.settings import RetentionConfig

    folder = study.retention
    config = from_mapping(read_json(folder / CONFIG), RetentionConfig)
    cells = read_cells(config, folder)
    seeds, snapshots = (sorted({cell[key] for cell in cells}) for key in ("seed", "snapshot"))
    draw, rows = drawings(config, {seed: parent_curves(config, folder, seed) for seed in seeds}, cells), _rows(cells)
    source = f"{folder.name}/cells/*.json: curve, initial; parents/*.json: curve"
    runs = f"{len(cells)} cells: snapshots {', '.join(map(str, snapshots))}; seeds {', '.join(map(str, seeds))}"
    missing = f"'{folder}' has no finished cells of this kind"
    return [
        Figure(*grid, DEFINITION, source, runs, rows, draw[kind]) if kind in draw else MissingFigure(*grid, missing)
        for kind, grid in GRIDS.items()
    ]


def _rows(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the correct answers by cell, trained adapter, global step and task."""
    return [
        {
            "seed": cell["seed"], "snapshot": cell["snapshot"], "adapter": adapter, "step": step, "task": task,
            "correct": " ".join(map(str, correct)),
        }
        for cell in cells
        for step, adapters in enumerate(cell["curve"], cell["snapshot"] + 1)
        for adapter, tasks in adapters.items()
        for task, correct in tasks.items()
    ]  # fmt: skip
