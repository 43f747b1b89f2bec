"""The paper's three figures of the benchmark: mutations and crossovers over all snapshots, and the live operators at one of them.

Thin grey: the parents' own learning curves, as far as they were trained. Colour: a child from its snapshot on, on the same scale of
global steps, a thin line for each seed and a thick one for their mean; the dot is the child before its first step, measured on more
problems. Thick grey: the frozen parent on the child's problems. Dashed: the control; dotted: an adapter that began anew. A child of two
parents has a colour for each parent's task. Lines are trailing means of `SMOOTHED` steps; the first ones are of the steps that there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from populora.core.files import read_json
from populora.evals.retention.grid import FRESH, FROZEN, parents_file
from populora.evals.retention.settings import CONTROLS, RetentionConfig
from populora.evals.retention.variants import Variant
from populora.evals.retention.verdicts import Rates, rates, trailing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00")
"""Of the first and the second parent's task (Okabe and Ito: told apart with any colour vision)."""
LIVE = ("m1", "m2", "m3", "m4", "x1", "x2", "x3", "x4")
SMOOTHED = 5
COLUMNS = 4  # of a figure with one snapshot
Cells = Sequence[Mapping[str, Any]]
Parents = Mapping[int, Mapping[str, Rates]]
"""By seed and task: the smoothed learning curve of the parent. A seed that is absent has no thin grey line."""
Panel = tuple[Variant, int]


def draw_figures(config: RetentionConfig, out: Path, cells: Cells) -> list[Path]:
    """Write ``figures/*.svg`` and ``.png`` of what is finished."""
    folder = out / "figures"
    folder.mkdir(exist_ok=True)
    written: list[Path] = []
    parents = {seed: parent_curves(config, out, seed) for seed in dict.fromkeys(cell["seed"] for cell in cells)}
    for title, draw in drawings(config, parents, cells).items():
        figure = draw()
        for kind in ("svg", "png"):
            written.append(folder / f"{title}.{kind}")
            figure.savefig(written[-1], dpi=110, metadata={"Date": None} if kind == "svg" else None)
    return written


def parent_curves(config: RetentionConfig, out: Path, seed: int) -> dict[str, Rates]:
    """By task: how the parent of a seed learned it. Raises `RunDirectoryError` for a file that cannot be read, and ``LookupError``,
    ``TypeError`` or ``ValueError`` for one that holds something else."""
    found = read_json(parents_file(out, seed))
    return {task: trailing(rates(found, task, task, config.parent_prompts, config.samples), SMOOTHED) for task in config.parents}


def drawings(config: RetentionConfig, parents: Parents, cells: Cells) -> dict[str, Callable[[], Figure]]:
    """``mutations``, ``crossovers`` and ``live``, as far as something of the kind was bred, to be drawn."""
    return {title: partial(_grid, config, parents, cells, rows) for title, rows in _panels(config, cells).items() if rows}


def _panels(config: RetentionConfig, cells: Cells) -> dict[str, list[list[Panel]]]:
    """Rows of panels by figure: an operator's snapshots beside each other, or, where there is only one, the operators."""
    snapshots = sorted({cell["snapshot"] for cell in cells})
    by_arity = {arity: [child for child in config.children() if child.arity == arity] for arity in (1, 2)}
    rows = {arity: [[(child, snapshot) for snapshot in snapshots] for child in own] for arity, own in by_arity.items()}
    if len(snapshots) == 1:
        for arity, own in rows.items():
            panels = [panel for row in own for panel in row]
            rows[arity] = [panels[start : start + COLUMNS] for start in range(0, len(panels), COLUMNS)]
    there = config.repeated in snapshots
    live = [[(child, config.repeated) for child in by_arity[arity] if child.name in LIVE and there] for arity in (1, 2)]
    found = {"mutations": rows[1], "crossovers": rows[2], "live": live}
    return {title: [row for row in own if row] for title, own in found.items()}


def _grid(config: RetentionConfig, parents: Parents, cells: Cells, rows: Sequence[Sequence[Panel]]) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    columns = max(map(len, rows))
    size = (2.5 * columns + 0.6, 1.7 * len(rows) + 0.9)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(rows), columns, sharex=True, sharey=True, squeeze=False)
    for row, panels, above in zip(axes, rows, [axes[0], *axes[:-1]], strict=True):
        for axis, upper in zip(row[len(panels) :], above[len(panels) :], strict=True):
            axis.set_visible(False)
            upper.tick_params(labelbottom=True)
        for axis, (child, snapshot) in zip(row, panels, strict=False):
            _panel(axis, config, parents, [cell for cell in cells if cell["snapshot"] == snapshot], child)
            told = "=" in child.name or child.name == child.operator.alias  # the name is long enough
            alias = "" if told else f" ({child.operator.alias.replace('_', ' ')})"
            axis.set_title(f"{child.name}{alias}, step {snapshot}", fontsize=7)
            axis.tick_params(labelsize=6)
    figure.supxlabel("step", fontsize=8)
    figure.supylabel("pass rate (trailing mean)", fontsize=8)
    line = lambda **style: Line2D([], [], **style)  # noqa: E731 - a legend's handles differ in style alone
    handles = [*(line(color=colour) for colour in COLOURS), line(color="0.6"), line(color="0.5", linestyle="--")]
    handles.append(line(color="0.5", linestyle=":"))
    labels = [*(f"child on {task}" for task in config.parents), "parent (thick: frozen)", "control", "fresh adapter"]
    figure.legend(handles, labels, loc="outside upper center", ncols=5, fontsize=7, frameon=False)
    return figure


def _panel(axis: Any, config: RetentionConfig, parents: Parents, cells: Cells, child: Variant) -> None:
    for index, task in enumerate(config.parents[: child.arity]):
        problems, colour = config.prompts // child.arity, COLOURS[index]

        def curves(name: str, task: str = task, problems: int = problems) -> list[Rates]:
            return [trailing(rates(cell, name, task, problems, config.samples), SMOOTHED) for cell in cells]

        for grey in (parents[cell["seed"]][task] for cell in cells if cell["seed"] in parents):
            axis.plot(np.arange(1, len(grey) + 1), grey, color="0.7", linewidth=0.6)
        steps = cells[0]["snapshot"] + np.arange(config.retrain_steps)
        axis.plot(steps, np.mean(curves(FROZEN[index]), axis=0), color="0.6", linewidth=1.6)
        for name, style in ((CONTROLS[child.arity], "--"), (FRESH[child.arity - 1], ":")):
            axis.plot(steps, np.mean(curves(name), axis=0), color=colour, linewidth=0.9, linestyle=style, alpha=0.7)
        for own in curves(child.name):
            axis.plot(steps, own, color=colour, linewidth=0.4, alpha=0.5)
        axis.plot(steps, np.mean(curves(child.name), axis=0), color=colour, linewidth=1.6)
        born = [sum(cell["birth"][child.name][task]) / (config.birth_problems * config.samples) for cell in cells]
        axis.plot(steps[0], np.mean(born), marker="o", markersize=3, color=colour)
