"""The paper's three figures of the benchmark: mutations and crossovers over all snapshots, and the live operators at one of them.

Thin grey: the parents' own learning curves, as far as they were trained. Colour: a child from the step after its snapshot on, on the same
scale of global steps, a thin line for each seed and a thick one for their mean. The dot is the child before its first step, measured on
more problems. Thick grey: the frozen parent on the child's problems. Dashed: the control. Dotted: an adapter that began anew. A child of
two parents has a colour for each parent's task. Lines are trailing means of `SMOOTHED` steps, the first ones of fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from populora.core.files import read_json
from populora.evals.retention.grid import FRESH, FROZEN, parents_file
from populora.evals.retention.settings import CONTROLS, RetentionConfig, Variant
from populora.evals.retention.verdicts import Rates, initial_rate, rates

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00")
"""Of the first and the second parent's task (Okabe and Ito's, distinct with any colour vision)."""
LIVE = ("m1", "m2", "m3", "m4", "x1", "x2", "x3", "x4")
SMOOTHED = 5
COLUMNS = 4  # of a figure with one snapshot
Cells = Sequence[Mapping[str, Any]]
Parents = Mapping[int, Mapping[str, Rates]]
"""By seed and task: the smoothed learning curve of the parent. A seed that is absent has no thin grey line."""
Panel = tuple[Variant, int]


def draw_figures(config: RetentionConfig, out: Path, cells: Cells) -> list[Path]:
    """Write ``figures/*.svg`` and ``.png`` of the finished cells."""
    folder, files = out / "figures", list[Path]()
    folder.mkdir(exist_ok=True)
    parents = {seed: parent_curves(config, out, seed) for seed in dict.fromkeys(cell["seed"] for cell in cells)}
    for title, draw in drawings(config, parents, cells).items():
        figure = draw()
        for kind in ("svg", "png"):
            files.append(folder / f"{title}.{kind}")
            figure.savefig(files[-1], dpi=110, metadata={"Date": None} if kind == "svg" else None)
    return files


def smoothed(values: Rates) -> Rates:
    """Average each value with up to `SMOOTHED` - 1 before it."""
    return np.array([values[max(end - SMOOTHED, 0) : end].mean() for end in range(1, len(values) + 1)])


def parent_curves(config: RetentionConfig, out: Path, seed: int) -> dict[str, Rates]:
    """Read the smoothed learning curves of a seed's parents, by task. Raises `RunDirectoryError` for a file that cannot be read."""
    content = read_json(parents_file(out, seed))
    return {task: smoothed(rates(content, task, task, config.parent_prompts, config.samples)) for task in config.parents}


def drawings(config: RetentionConfig, parents: Parents, cells: Cells) -> dict[str, Callable[[], Figure]]:
    """Return functions that draw ``mutations``, ``crossovers`` and ``live``, without those that have no child."""
    snapshots = sorted({cell["snapshot"] for cell in cells})
    children = {arity: [child for child in config.children() if child.arity == arity] for arity in (1, 2)}
    rows: dict[str, list[list[Panel]]] = {
        title: [[(child, snapshot) for snapshot in snapshots] for child in children[arity]]
        for title, arity in (("mutations", 1), ("crossovers", 2))
    }
    if len(snapshots) == 1:  # the operators next to each other
        for title, lines in rows.items():
            panels = [panel for line in lines for panel in line]
            rows[title] = [panels[start : start + COLUMNS] for start in range(0, len(panels), COLUMNS)]
    if config.repeated in snapshots:
        live = [[(child, config.repeated) for child in children[arity] if child.name in LIVE] for arity in (1, 2)]
        rows["live"] = [line for line in live if line]
    return {title: partial(_grid, config, parents, cells, lines) for title, lines in rows.items() if any(lines)}


def _grid(config: RetentionConfig, parents: Parents, cells: Cells, rows: Sequence[Sequence[Panel]]) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    columns = max(map(len, rows))
    figure = Figure(figsize=(2.5 * columns + 0.6, 1.7 * len(rows) + 0.9), layout="constrained")
    axes = figure.subplots(len(rows), columns, sharex=True, sharey=True, squeeze=False)
    for row, panels, above in zip(axes, rows, [axes[0], *axes[:-1]], strict=True):
        for axis, upper in zip(row[len(panels) :], above[len(panels) :], strict=True):
            axis.set_visible(False)
            upper.tick_params(labelbottom=True)
        for axis, (child, snapshot) in zip(row, panels, strict=False):
            _panel(axis, config, parents, [cell for cell in cells if cell["snapshot"] == snapshot], child)
            clear = "=" in child.name or child.name == child.operator.alias
            alias = "" if clear else f" ({child.operator.alias.replace('_', ' ')})"
            axis.set_title(f"{child.name}{alias}, step {snapshot}", fontsize=7)
            axis.tick_params(labelsize=6)
    figure.supxlabel("step", fontsize=8)
    figure.supylabel("pass rate (trailing mean)", fontsize=8)
    styles: list[tuple[str, Any]] = [*((colour, "-") for colour in COLOURS), ("0.6", "-"), ("0.5", "--"), ("0.5", ":")]
    handles = [Line2D([], [], color=colour, linestyle=style) for colour, style in styles]
    labels = [*(f"child on {task}" for task in config.parents), "parent (thick: frozen)", "control", "fresh adapter"]
    figure.legend(handles, labels, loc="outside upper center", ncols=5, fontsize=7, frameon=False)
    return figure


def _panel(axis: Any, config: RetentionConfig, parents: Parents, cells: Cells, child: Variant) -> None:
    snapshot, problems = cells[0]["snapshot"], config.prompts // child.arity
    steps = snapshot + np.arange(1, config.retrain_steps + 1)
    for index, task in enumerate(config.parents[: child.arity]):
        colour = COLOURS[index]
        names = (child.name, FROZEN[index], CONTROLS[child.arity], FRESH[child.arity - 1])
        learned, frozen, control, fresh = (
            [smoothed(rates(cell, name, task, problems, config.samples)) for cell in cells] for name in names
        )
        for curve in (parents[cell["seed"]][task] for cell in cells if cell["seed"] in parents):
            axis.plot(np.arange(1, len(curve) + 1), curve, color="0.7", linewidth=0.6)
        axis.plot(steps, np.mean(frozen, axis=0), color="0.6", linewidth=1.6)
        for curves, style in ((control, "--"), (fresh, ":")):
            axis.plot(steps, np.mean(curves, axis=0), color=colour, linewidth=0.9, linestyle=style, alpha=0.7)
        for curve in learned:
            axis.plot(steps, curve, color=colour, linewidth=0.4, alpha=0.5)
        axis.plot(steps, np.mean(learned, axis=0), color=colour, linewidth=1.6)
        first = np.mean([initial_rate(config, cell, child.name, task) for cell in cells])
        axis.plot(snapshot, first, marker="o", markersize=3, color=colour)
