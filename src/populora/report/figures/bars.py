"""How downstream scores are drawn: roles in groups of bars, and a panel a benchmark with a bar an adapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from populora.evals.benchmarks import BENCHMARKS
from populora.evals.results import Evaluation
from populora.evals.tables import Cell, downstream
from populora.report.arms import INK, PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


def draw_roles(found: list[Evaluation]) -> Drawing:
    """A group a benchmark, a bar a single source or the mean of a role, with a pale cap up to the best member."""
    from populora.report.drawing import PALE, STUDENT, TEACHER, many, panels

    table = downstream(found, members=False)
    bars: dict[str, Mapping[str, Cell]] = {}
    caps: dict[str, Mapping[str, Cell]] = {}
    for block in table.blocks:
        best = next((row.cells for row in block.rows if row.kind == "best"), {})
        for row in (row for row in block.rows if row.kind in ("member", "mean")):
            bars[label := f"{block.name} {row.label}".strip()] = row.cells
            caps[label] = best if row.kind == "mean" else {}
    single = [label for label in bars if not caps[label]]
    roles, few = [label for label in bars if caps[label]], len(bars) <= len(PALETTE)
    colours = dict(zip(roles, (TEACHER, STUDENT, *PALETTE[2:4]), strict=False)) | dict(zip(single, (INK, PALE, *PALETTE[4:]), strict=False))
    colours = many(list(bars)) | (colours if few else {})
    wide, benchmarks = 0.8 / len(bars), table.benchmarks
    drawing, axes = panels(1, 1, width=min(10.0, max(6.0, 1.2 + 0.2 * len(benchmarks) * len(bars))), height=2.6)
    for index, (label, cells) in enumerate(bars.items()):
        for shown, alpha in ((caps[label], 0.3), (cells, 1.0)):
            places = {place - 0.4 + wide * (index + 0.5): shown[name] for place, name in enumerate(benchmarks) if name in shown}
            values, color = [cell.value for cell in places.values()], colours[label]
            axes[0, 0].bar(list(places), values, wide * 0.92, color=color, alpha=alpha, linewidth=0, label=label if alpha == 1 else None)
        spread = [cell.std or 0.0 for cell in places.values()]
        if any(spread):
            axes[0, 0].errorbar(list(places), values, spread, fmt="none", ecolor=INK, elinewidth=0.8)
    axes[0, 0].set_xticks(range(len(benchmarks)), [BENCHMARKS[one].title for one in benchmarks])
    axes[0, 0].set(ylabel="pass@1, %", ylim=(0, None), xlim=(-0.6, len(benchmarks) - 0.4))
    axes[0, 0].grid(visible=False, axis="x")
    drawing.legend(loc="outside upper left", ncols=2 if len(benchmarks) < 5 else 4)
    return drawing


def draw_adapters(found: list[Evaluation]) -> Drawing:
    """A panel a benchmark with a bar an adapter, in the colour of its role."""
    from populora.report.drawing import PALE, STUDENT, TEACHER, mark, panels

    colours = {"base": PALE, "agent": INK, "teacher": TEACHER, "student": STUDENT, "adapter": PALETTE[2]}
    sources, benchmarks = [(one, source) for one in found for source in one.sources], downstream(found).benchmarks
    columns = min(5, len(benchmarks))
    width, height = 10 / max(2, columns), 0.5 + 0.15 * len(sources)
    drawing, axes = panels(-(-len(benchmarks) // columns), columns, width, height, sharey=True, sharex=True)
    for axis in axes.flat[len(benchmarks) :]:
        axis.set_visible(False)
    for axis, name in zip(axes.flat, benchmarks, strict=False):
        for place, (one, source) in enumerate(sources):
            score = one.of(source.name).get(name)
            if score and score.complete:
                bar = axis.barh(place, score.rate, 0.75, color=colours[source.role])
                axis.bar_label(bar, [f"{score.rate:.1f}"], padding=2, fontsize=6)
                if source.role in ("teacher", "student"):
                    mark(bar[0], source.name)
        axis.set(title=BENCHMARKS[name].title, ylim=(len(sources) - 0.4, -0.6), xlim=(0, 112), xlabel="pass@1, %")
        axis.grid(visible=False, axis="y")
    axes[0, 0].set_yticks(range(len(sources)), [f"{one.name} {source.name}".strip() for one, source in sources])
    return drawing
