"""How downstream scores are drawn: roles in groups of bars, and a panel a benchmark with a bar an adapter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from populora.evals.aggregates import ScoreCell, columns_of, score_rows
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.records import ModelRole
from populora.evals.scores import Evaluation
from populora.report.arms import INK, PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


@dataclass(frozen=True)
class Bar:
    """A source that is alone in its role, or a role's mean; by benchmark, whole ones alone."""

    label: str
    cells: Mapping[str, ScoreCell]
    caps: Mapping[str, ScoreCell]
    """Of a mean: the best of the members that it is over."""


def bars(one: Evaluation) -> list[Bar]:
    """The bars of an evaluation, role by role."""
    found: list[Bar] = []
    for role in get_args(ModelRole):
        own = replace(one, models=tuple(model for model in one.models if model.role == role))
        rows = score_rows(own, columns_of([own]).aggregates, members=False)  # of one role: its best is the best of its own members
        best = next((_whole(row.cells) for row in rows if row.kind == "best"), {})
        for row in (row for row in rows if row.kind in ("member", "mean")):
            found.append(Bar(f"{one.name} {row.label}".strip(), _whole(row.cells), best if row.kind == "mean" else {}))
    return found


def _whole(cells: Mapping[str, ScoreCell]) -> dict[str, ScoreCell]:
    return {name: cell for name, cell in cells.items() if cell.complete}


def draw_roles(found: list[Evaluation]) -> Drawing:
    """A group a benchmark, a bar a single source or the mean of a role, with a pale cap up to its best member."""
    from populora.report.drawing import panels

    groups, benchmarks = [bar for one in found for bar in bars(one)], columns_of(found).benchmarks
    colours, wide = _colours(groups), 0.8 / len(groups)
    drawing, axes = panels(1, 1, width=min(10.0, max(6.0, 1.2 + 0.2 * len(benchmarks) * len(groups))), height=2.6)
    for index, bar in enumerate(groups):
        for shown, alpha in ((bar.caps, 0.3), (bar.cells, 1.0)):
            places = {place - 0.4 + wide * (index + 0.5): shown[name] for place, name in enumerate(benchmarks) if name in shown}
            values, label = [cell.value for cell in places.values()], bar.label if alpha == 1 else None
            axes[0, 0].bar(list(places), values, wide * 0.92, color=colours[bar.label], alpha=alpha, linewidth=0, label=label)
        spread = [cell.std or 0.0 for cell in places.values()]
        if any(spread):
            axes[0, 0].errorbar(list(places), values, spread, fmt="none", ecolor=INK, elinewidth=0.8)
    axes[0, 0].set_xticks(range(len(benchmarks)), [BENCHMARKS[one].title for one in benchmarks])
    axes[0, 0].set(ylabel="pass@1, %", ylim=(0, None), xlim=(-0.6, len(benchmarks) - 0.4))
    axes[0, 0].grid(visible=False, axis="x")
    drawing.legend(loc="outside upper left", ncols=2 if len(benchmarks) < 5 else 4)
    return drawing


def _colours(groups: list[Bar]) -> dict[str, Any]:
    """By label. Few bars have the colours of roles and of single sources, many have one each."""
    from populora.report.drawing import PALE, STUDENT, TEACHER, many

    if len(groups) > len(PALETTE):
        return many([bar.label for bar in groups])
    means, single = [bar.label for bar in groups if bar.caps], [bar.label for bar in groups if not bar.caps]
    few = dict(zip(means, (TEACHER, STUDENT, *PALETTE[2:4]), strict=False)) | dict(zip(single, (INK, PALE, *PALETTE[4:]), strict=False))
    return many([bar.label for bar in groups]) | few


def draw_adapters(found: list[Evaluation]) -> Drawing:
    """A panel a benchmark with a bar an adapter, in the colour of its role."""
    from populora.report.drawing import PALE, STUDENT, TEACHER, mark, panels

    colours = {"base": PALE, "agent": INK, "teacher": TEACHER, "student": STUDENT, "adapter": PALETTE[2]}
    sources, benchmarks = [(one, source) for one in found for source in one.models], columns_of(found).benchmarks
    columns = min(5, len(benchmarks))
    width, height = 10 / max(2, columns), 0.5 + 0.15 * len(sources)
    drawing, axes = panels(-(-len(benchmarks) // columns), columns, width, height, sharey=True, sharex=True)
    for axis in axes.flat[len(benchmarks) :]:
        axis.set_visible(False)
    for axis, name in zip(axes.flat, benchmarks, strict=False):
        for place, (one, source) in enumerate(sources):
            score = one.scores_of(source.name).get(name)
            if score and score.complete:
                bar = axis.barh(place, score.rate, 0.75, color=colours[source.role])
                axis.bar_label(bar, [f"{score.rate:.1f}"], padding=2, fontsize=6)
                if source.role in ("teacher", "student"):
                    mark(bar[0], source.name)
        axis.set(title=BENCHMARKS[name].title, ylim=(len(sources) - 0.4, -0.6), xlim=(0, 112), xlabel="pass@1, %")
        axis.grid(visible=False, axis="y")
    axes[0, 0].set_yticks(range(len(sources)), [f"{one.name} {source.name}".strip() for one, source in sources])
    return drawing
