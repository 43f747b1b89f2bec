"""Downstream scores of evaluation folders: bars by role and by adapter, and the table of `populora evaluate table`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from populora.errors import PopuloraError
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.folder import evaluation_of
from populora.evals.report import records, tables
from populora.evals.results import Evaluation
from populora.evals.tables import downstream
from populora.report.arms import INK, PALETTE
from populora.report.figure import Absent, Figure, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

BARS = ("downstream", "Downstream pass@1", "Figure 2 and Table 3 (downstream pass@1)")
ADAPTERS = ("downstream_adapters", "Downstream pass@1 of each adapter", "Figures: all adapters of a population")
_GREEDY = (
    "Per cent of a benchmark's items that the greedy answer gets right, in the reading that its published score counts; whole benchmarks "
    "alone."
)


def downstream_figures(study: Study) -> list[Figure | Absent]:
    """Bars of roles with their best adapter, and bars of all adapters; or why there are none."""
    both = (BARS, ADAPTERS)
    if not study.evaluations:
        reason = "give a folder of `populora evaluate` with --evaluation DIR, or let it stand in the run's evaluations/"
        return [Absent(name, title, reason, paper) for name, title, paper in both]
    try:
        found = [evaluation_of(folder, _name(folder)) for folder in study.evaluations]
        if not downstream(found).benchmarks:
            raise PopuloraError("nothing is graded in these evaluations yet")
        return [_bars(study, found), _adapters(study, found)]
    except PopuloraError as error:
        return [Absent(name, title, str(error), paper) for name, title, paper in both]


def _name(folder: Path) -> str:
    """``4t4s/step_00200`` of ``runs/4t4s/evaluations/step_00200``."""
    parents = folder.resolve().parents
    return f"{parents[1].name}/{folder.name}" if parents[0].name == "evaluations" else folder.name


def _bars(study: Study, found: list[Evaluation]) -> Figure:
    name, title, paper = BARS
    layouts = tables(found, with_published=study.published)
    return Figure(
        name,
        title,
        f"{_GREEDY} A bar is the mean over the members of a role, with ± one sample standard deviation; the pale cap reaches to the best "
        "member of "
        "each benchmark by itself: it is selected on the test set, and no one adapter has it.",
        "evaluation folders: verdicts/BENCHMARK/SOURCE.jsonl",
        _shown(found),
        records(found, study.published),
        lambda: _draw_bars(found),
        paper,
        tuple(layouts),
    )


def _adapters(study: Study, found: list[Evaluation]) -> Figure:
    name, title, paper = ADAPTERS
    rows = [
        {
            "evaluation": one.name,
            "source": score.source,
            "benchmark": score.benchmark,
            "correct": score.correct,
            "graded": score.graded,
            "items": score.items,
        }
        for one in found
        for score in one.scores
    ]
    shape = "A bar is one adapter, or the bare base."
    return Figure(
        name,
        title,
        f"{_GREEDY} {shape}",
        "evaluation folders: verdicts/BENCHMARK/SOURCE.jsonl",
        _shown(found),
        rows,
        lambda: _draw_adapters(found),
        paper,
    )


def _shown(found: list[Evaluation]) -> str:
    return "; ".join(f"{one.name}: {len(one.sources)} sources" for one in found)


def _draw_bars(found: list[Evaluation]) -> Drawing:
    table = downstream(found, members=False)
    bars: list[tuple[str, dict[str, Any]]] = []
    caps: dict[int, dict[str, Any]] = {}
    for block in table.blocks:
        own = [row for row in block.rows if row.kind in ("member", "mean")]
        best = next((row for row in block.rows if row.kind == "best"), None)
        for row in own:
            if best and row.kind == "mean":
                caps[len(bars)] = dict(best.cells)
            bars.append((f"{block.name} {row.label}".strip(), dict(row.cells)))
    return _grouped(list(table.benchmarks), bars, caps)


def _draw_adapters(found: list[Evaluation]) -> Drawing:
    table = downstream(found)
    bars = [
        (f"{one.name} {source.name}".strip(), {name: score for name, score in one.of(source.name).items() if score.complete})
        for one in found
        for source in one.sources
    ]
    return _grouped(list(table.benchmarks), bars, {})


def _grouped(benchmarks: list[str], bars: list[tuple[str, dict[str, Any]]], caps: dict[int, dict[str, Any]]) -> Drawing:
    """Bars beside each other in a group a benchmark; a `Cell` has a value and a spread, a `Score` a rate."""
    from matplotlib import colormaps

    from populora.report.drawing import panels

    few = len(bars) <= 1 + len(PALETTE)
    colours = [INK, *PALETTE][: len(bars)] if few else list(colormaps["turbo"](np.linspace(0.05, 0.95, len(bars))))
    drawing, axes = panels(1, 1, width=max(5.0, 1.2 + 0.35 * len(benchmarks) * max(2, len(bars) / 2)), height=2.6)
    axis, wide = axes[0, 0], 0.8 / len(bars)
    for index, (label, cells) in enumerate(bars):
        for place, benchmark in enumerate(benchmarks):
            if benchmark not in cells:
                continue
            cell, x = cells[benchmark], place - 0.4 + wide * (index + 0.5)
            value = getattr(cell, "value", None)
            value = cell.rate if value is None else value
            top = caps.get(index, {}).get(benchmark)
            if top is not None:
                axis.bar(x, top.value, wide * 0.92, color=colours[index], alpha=0.3, linewidth=0)
            axis.bar(
                x,
                value,
                wide * 0.92,
                yerr=getattr(cell, "std", None),
                color=colours[index],
                error_kw={"elinewidth": 0.7},
                label=label if place == 0 else None,
            )
    axis.set_xticks(range(len(benchmarks)), [BENCHMARKS[one].title for one in benchmarks])
    axis.set(ylabel="pass@1, %", ylim=(0, None))
    handles, labels = axis.get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside upper left", ncols=4)
    return drawing
