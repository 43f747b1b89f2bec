"""Drawing with matplotlib: one style for page and paper, panels of curves, and files.

The page's figures are the saved ones with their colours replaced by variables of its style sheet, so that they follow light and dark, and
with the marks of members (`mark`) made findable for the page's script.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from populora.report.arms import INK, PALETTE, Arm
from populora.report.curves import WHOLE, Curve, mean, stacked, trailing
from populora.report.figure import Figure
from populora.runlog.style import printable

TEACHER, STUDENT, PALE = "#d55e00", "#0072b2", "#8b8b8c"
LINES = ("-", "--", ":", "-.")
"""Styles of the lines of arms that share a colour, as baselines do."""
KINDS = ("svg", "png", "pdf")
_STYLE: dict[Any, Any] = {
    "font.size": 8, "axes.titlesize": 9, "axes.labelsize": 8, "legend.fontsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6, "lines.linewidth": 1.4, "legend.frameon": False,
    "text.parse_math": False, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "axes.titlecolor": INK,
    "xtick.color": INK, "ytick.color": INK, "axes.titlelocation": "left",
    "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none", "svg.fonttype": "none", "pdf.fonttype": 42,
    "axes.grid": True, "axes.axisbelow": True,
    "grid.color": PALE, "grid.alpha": 0.25, "grid.linewidth": 0.5,
}  # fmt: skip
_VARIABLES = {INK: "ink", PALE: "pale", **{colour: f"c{number}" for number, colour in enumerate(PALETTE, start=1)}}


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


def drawn(figure: Figure) -> Drawing:
    """The figure in our style."""
    with rc_context(_STYLE):
        return figure.draw()


def save(figure: Figure, folder: Path, kinds: Sequence[str] = KINDS) -> list[Path]:
    """Write ``NAME.svg``, ``.png`` and ``.pdf``, each with what it shows in its metadata, and ``.csv``; equal numbers give equal files."""
    drawing, written = drawn(figure), [folder / f"{figure.name}.csv"]
    written[0].write_bytes(figure.csv().encode("utf-8", "backslashreplace"))
    for kind in kinds:
        written.append(folder / f"{figure.name}.{kind}")
        written[-1].write_bytes(_bytes(drawing, figure.name, kind, _stated(figure, kind), facecolor="white"))
    return written


def svg(figure: Figure) -> str:
    """The figure as an element for the page."""
    text = _bytes(drawn(figure), figure.name, "svg", {"Date": None}).decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="mark\.([^"]+)\.\d+-\d+">', r'<g data-mark="\1">', text)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', text))
    return re.sub(r"<[^>]*>", lambda tag: _themed(tag[0], used), text)  # tags alone: programs stand in it as text


def _themed(tag: str, used: set[str]) -> str:
    """A tag of the page: only ids in use, which are named after the figure; others (``axes_1``) would stand in each of them."""
    text = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", tag)
    text = re.sub(r"(\.\d\d)\d+", r"\1", text)  # hundredths of a point are enough
    for colour, name in _VARIABLES.items():
        text = text.replace(colour, f"var(--{name})")
    return text


def _stated(figure: Figure, kind: str) -> dict[str, Any]:
    """What a file says of itself, in the fields of its kind; no date, so that equal numbers are equal bytes."""
    title, words = printable(figure.title), printable(f"{figure.definition} Shown: {figure.shown}. From: {figure.source}.")
    return {
        "svg": {"Title": title, "Description": words, "Date": None},
        "png": {"Title": title, "Description": words},
        "pdf": {"Title": title, "Subject": words, "CreationDate": None},
    }[kind]


def _bytes(drawing: Drawing, name: str, kind: str, metadata: dict[str, Any], **options: Any) -> bytes:
    buffer = io.BytesIO()
    with rc_context({**_STYLE, "svg.hashsalt": name}):
        drawing.savefig(buffer, format=kind, dpi=150, metadata=metadata, **options)
    return buffer.getvalue()


def _smoothed(curves: Sequence[Curve], window: int) -> list[Curve]:
    """Each over its own steps, so that a short run is not drawn beyond its end."""
    return [replace(curve, values=trailing(curve.values, window)) for curve in curves]


def _extremes(values: Any) -> tuple[Any, Any]:
    defined = np.isfinite(values)
    low, high = np.where(defined, values, np.inf).min(axis=0), np.where(defined, values, -np.inf).max(axis=0)
    return np.where(np.isfinite(low), low, np.nan), np.where(np.isfinite(high), high, np.nan)
