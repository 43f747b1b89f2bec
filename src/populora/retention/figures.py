"""The paper's three figures of the benchmark: mutations and crossovers over all snapshots, and the live operators at one of them.

Grey: the parents' own learning curves. Colour: a child from its snapshot on, on the same scale of global steps; a thin line for each
seed, a thick one for their mean. A child of two parents has a line for each parent's task. All lines are trailing means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from populora.errors import ConfigError
from populora.operators import get_operator
from populora.retention.grid import parents_file
from populora.retention.settings import RetentionConfig
from populora.retention.verdicts import Rates, rates, trailing
from populora.runlog.files import read_json

COLOURS = ("#0072b2", "#d55e00")
"""Of the first and the second parent's task (Okabe and Ito: told apart with any colour vision)."""
LIVE = ("m1", "m2", "m3", "m4", "x1", "x2", "x3", "x4")
Cells = Sequence[Mapping[str, Any]]


def draw_figures(config: RetentionConfig, out: Path, cells: Cells) -> list[Path]:
    """Write ``figures/*.svg`` and ``.png`` of what is finished. Raises `ConfigError` where matplotlib is missing."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ConfigError("the figures need matplotlib: `pip install 'populora[report]'`; the results are written already") from error
    folder = out / "figures"
    folder.mkdir(exist_ok=True)
    snapshots = sorted({cell["snapshot"] for cell in cells})
    names = {arity: [name for name in config.children() if get_operator(name).arity == arity] for arity in (1, 2)}
    panels = {
        "mutations": [[(name, snapshot) for snapshot in snapshots] for name in names[1]],
        "crossovers": [[(name, snapshot) for snapshot in snapshots] for name in names[2]],
        "live": [[(name, config.repeated) for name in LIVE if name in names[arity]] for arity in (1, 2)],
    }
    written: list[Path] = []
    for title, rows in panels.items():
        figure = _grid(plt, config, out, cells, [row for row in rows if row])
        for kind in ("svg", "png"):
            written.append(folder / f"{title}.{kind}")
            figure.savefig(written[-1], dpi=110, metadata={"Date": None} if kind == "svg" else None)
        plt.close(figure)
    return written


def _grid(plt: Any, config: RetentionConfig, out: Path, cells: Cells, rows: Sequence[Sequence[tuple[str, int]]]) -> Any:
    columns = max(map(len, rows))
    size = (2.5 * columns + 0.6, 1.7 * len(rows) + 0.7)
    figure, axes = plt.subplots(len(rows), columns, figsize=size, sharex=True, sharey=True, squeeze=False, layout="constrained")
    for row, panels in zip(axes, rows, strict=True):
        for axis, (name, snapshot) in zip(row, panels, strict=False):
            _panel(axis, config, out, [cell for cell in cells if cell["snapshot"] == snapshot], name)
            axis.set_title(f"{name} {get_operator(name).alias.replace('_', ' ')}, step {snapshot}", fontsize=7)
            axis.tick_params(labelsize=6)
    figure.supxlabel("step", fontsize=8)
    figure.supylabel("pass rate (trailing mean)", fontsize=8)
    handles = [plt.Line2D([], [], color=colour) for colour in COLOURS] + [plt.Line2D([], [], color="0.6")]
    labels = [*(f"child on {task}" for task in config.parents), "parent"]
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=7, frameon=False)
    return figure


def _panel(axis: Any, config: RetentionConfig, out: Path, cells: Cells, name: str) -> None:
    arity = get_operator(name).arity
    for index, task in enumerate(config.parents[:arity]):
        children: list[Rates] = []
        for cell in cells:
            parents = read_json(parents_file(out, cell["seed"]))
            grey = trailing(rates(parents, task, task, config.parent_prompts, config.samples), config.window)
            axis.plot(np.arange(1, len(grey) + 1), grey, color="0.6", linewidth=0.6, linestyle=("-", "--")[index])
            children.append(trailing(rates(cell, name, task, config.prompts // arity, config.samples), config.window))
            axis.plot(cell["snapshot"] + 1 + np.arange(len(children[-1])), children[-1], color=COLOURS[index], linewidth=0.5, alpha=0.6)
        if len(children) > 1:
            mean = np.mean(children, axis=0)
            axis.plot(cells[0]["snapshot"] + 1 + np.arange(len(mean)), mean, color=COLOURS[index], linewidth=1.6)
