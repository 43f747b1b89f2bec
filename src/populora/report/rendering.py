"""Render figures as elements of the page and as files.

The page's figures are the exported ones. Their colours are replaced by variables of the style sheet, so that they follow light and dark,
and the ids of members (`populora.report.drawing.tag_artist`) by attributes that the page's script finds.
"""

import io
import re
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure as Drawing

from populora.report.arms import INK, PALETTE
from populora.report.drawing import PALE, STYLE
from populora.report.figure import Figure
from populora.runs.style import printable

KINDS = ("svg", "png", "pdf")
CSS_VARIABLES = {INK: "ink", PALE: "pale", **{colour: f"c{number}" for number, colour in enumerate(PALETTE, start=1)}}
"""Variables of the page's style sheet by the colour that they replace."""


def save_figure(figure: Figure, folder: Path) -> list[Path]:
    """Write a figure as CSV, SVG, PNG and PDF, with its caption in their metadata. Equal numbers give bit-identical files."""
    drawing, written = figure.draw(), [folder / f"{figure.name}.csv"]
    written[0].write_bytes(figure.csv().encode("utf-8", "backslashreplace"))
    title, caption = printable(figure.title), printable(f"{figure.definition} Shown: {figure.runs}. From: {figure.source}.")
    metadata = {
        "svg": {"Title": title, "Description": caption, "Date": None},
        "png": {"Title": title, "Description": caption},
        "pdf": {"Title": title, "Subject": caption, "CreationDate": None},
    }
    for kind in KINDS:
        written.append(folder / f"{figure.name}.{kind}")
        written[-1].write_bytes(_render(drawing, figure.name, kind, metadata[kind]))
    return written


def svg(figure: Figure) -> str:
    """Render a figure as an element of the page."""
    text = _render(figure.draw(), figure.name, "svg", {"Date": None}, facecolor="none").decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="mark\.([^"]+)\.\d+-\d+">', r'<g data-mark="\1">', text)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', text))
    return re.sub(r"<[^>]*>", lambda tag: _themed(tag[0], used), text)  # only in tags: the text may hold programs


def _themed(tag: str, used: set[str]) -> str:
    """Replace colours by variables, and drop unused ids such as ``axes_1``, which would repeat in every figure."""
    text = re.sub(r' id="([^"]*)"', lambda match: match[0] if match[1] in used else "", tag)
    text = re.sub(r"(\.\d\d)\d+", r"\1", text)  # hundredths of a point are enough
    for colour, name in CSS_VARIABLES.items():
        text = text.replace(colour, f"var(--{name})")
    return text


def _render(drawing: Drawing, name: str, kind: str, metadata: dict[str, Any], **options: Any) -> bytes:
    buffer = io.BytesIO()
    with rc_context({**STYLE, "svg.hashsalt": name}):
        drawing.savefig(buffer, format=kind, dpi=150, metadata=metadata, **options)
    return buffer.getvalue()
