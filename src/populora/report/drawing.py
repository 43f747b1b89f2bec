"""Drawing with matplotlib: panels, curves of arms with the band of their members, matrices, colours and legends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from populora.report.arms import Arm
from populora.report.curves import WHOLE, Curve, mean, stacked, trailing

TEACHER, STUDENT, PALE = "#d55e00", "#0072b2", "#8b8b8c"
LINES = ("-", "--", ":", "-.")
"""Styles of the lines of arms that share a colour, as baselines do."""


def panels(rows: int, columns: int, width: float = 2.5, height: float = 1.9, **options: Any) -> tuple[Drawing, Any]:
    """A drawing and its axes [rows, columns]; inches a panel."""
    drawing = Drawing(figsize=(width * columns, height * rows + 0.3), layout="constrained")
    return drawing, drawing.subplots(rows, columns, squeeze=False, **options)


def mark(artist: Any, name: str) -> None:
    """Let the page find what belongs to a member. Numbered within the drawing, so that equal drawings are equal bytes."""
    axis = artist.axes
    artist.set_gid(f"mark.{name}.{axis.figure.axes.index(axis)}-{len(axis.get_children())}")


def draw_curves(axis: Axes, arms: Sequence[Arm], curves: Sequence[Curve], smooth: int, members: bool = False) -> None:
    """Per arm the mean of its runs, up to where the first of them ends, and the band of their members.

    ``members``: a thin line for each instead of the band.
    """
    lines = styles(arms)
    for arm in arms:
        own = [curve for curve in curves if curve.arm == arm.label]
        whole = [curve for curve in own if curve.member == WHOLE]
        single = [curve for curve in own if curve.member != WHOLE]
        if len(single) > 1 or (members and single):
            steps, smoothed = stacked(_smoothed(single, smooth))
            if members:
                for curve, line in zip(single, smoothed, strict=True):
                    style = "--" if curve.member[0] == "T" else "-"
                    mark(axis.plot(steps, line, style, color=arm.colour, linewidth=0.6, alpha=0.5)[0], curve.member)
            else:
                low, high = _extremes(smoothed)
                axis.fill_between(steps, low, high, color=arm.colour, alpha=0.18, linewidth=0)
        if reached := [curve.steps[-1] for curve in whole if np.isfinite(curve.values).any()]:
            steps, smoothed = stacked(_smoothed(whole, smooth))
            shared = steps <= min(reached)  # beyond, the mean would jump for being of fewer runs
            axis.plot(steps[shared], mean(smoothed[:, shared]), lines[arm.label], color=arm.colour)


def heat(axis: Axes, values: Any, rows: Sequence[str], columns: Sequence[str], digits: int = 2) -> None:
    """A matrix of shares [rows, columns] with its numbers; what is undefined stays empty."""
    shown = np.array(values, dtype=float).reshape(len(rows), len(columns))
    axis.imshow(shown, cmap="Blues", vmin=0, vmax=1.4, aspect="auto")  # pale enough for dark numbers everywhere
    for (row, column), value in np.ndenumerate(shown):
        if np.isfinite(value):
            axis.text(column, row, f"{value:.{digits}f}", ha="center", va="center", fontsize=7, color="black")
    axis.set_xticks(range(len(columns)), columns)
    axis.set_yticks(range(len(rows)), rows)
    axis.grid(visible=False)


def many(names: Sequence[str]) -> dict[str, Any]:
    """A colour for each of up to 18 names, strong ones first; the rest is grey."""
    from matplotlib import colormaps

    table = [colour for place, colour in enumerate(colormaps["tab20"](range(20))) if place // 2 != 7]  # the greys
    return dict.fromkeys(names, PALE) | dict(zip(names, [*table[::2], *table[1::2]], strict=False))


def styles(arms: Sequence[Arm]) -> dict[str, Any]:
    """A line style of `LINES` for each arm by its label: by its place among those of its colour."""
    colours = [arm.colour for arm in arms]
    return {arm.label: LINES[colours[:place].count(arm.colour) % len(LINES)] for place, arm in enumerate(arms)}


def legend(drawing: Drawing, arms: Sequence[Arm]) -> None:
    """The arms' colours and line styles above all panels."""
    from matplotlib.lines import Line2D

    lines = styles(arms)
    handles = [Line2D([], [], color=arm.colour, linestyle=lines[arm.label]) for arm in arms]
    drawing.legend(handles, [arm.label for arm in arms], loc="outside upper left", ncols=max(1, min(len(arms), 4)))


def _smoothed(curves: Sequence[Curve], window: int) -> list[Curve]:
    """Each over its own steps, so that a short run is not drawn beyond its end."""
    return [replace(curve, values=trailing(curve.values, window)) for curve in curves]


def _extremes(values: Any) -> tuple[Any, Any]:
    defined = np.isfinite(values)
    low, high = np.where(defined, values, np.inf).min(axis=0), np.where(defined, values, -np.inf).max(axis=0)
    return np.where(np.isfinite(low), low, np.nan), np.where(np.isfinite(high), high, np.nan)
