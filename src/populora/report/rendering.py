"""Figures as an element of the page and as files, in one style for page and paper.

The page's figures are the saved ones with their colours replaced by variables of its style sheet, so that they follow light and dark, and
with the marks of members (`populora.report.drawing.mark`) made findable for the page's script.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure as Drawing

from populora.report.arms import INK, PALETTE
from populora.report.drawing import PALE
from populora.report.figure import Figure
from populora.runs.style import printable

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
