"""What stands beside figures that are files: a page of Markdown that says of each what the report's page says under it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from populora.evals.text_table import to_markdown
from populora.report.figure import Absent, Figure
from populora.runs.style import printable

LISTING = "figures.md"
"""Name of the file."""


def listing(figures: Sequence[Figure | Absent], files: Sequence[str]) -> str:
    """A section a figure: definition, runs and seeds, source columns, tables and the names of its ``files``; or why it is absent."""
    return "# Figures\n" + "".join(_section(one, [file for file in files if file.rpartition(".")[0] == one.name]) for one in figures)


def _section(one: Figure | Absent, files: Sequence[str]) -> str:
    heading = f"\n## {_plain(one.title)}\n" + (f"\nIn the paper: {_plain(one.paper)}.\n" if one.paper else "")
    if isinstance(one, Absent):
        return f"{heading}\nNot here: {_plain(one.reason)}.\n"
    facts = {"Shown": _plain(one.shown), "From": _plain(one.source), "Files": ", ".join(f"[{file}]({file})" for file in files)}
    listed = "".join(f"- **{name}**: {text}.\n" for name, text in facts.items())
    return f"{heading}\n{_plain(one.definition)}\n\n{listed}" + "".join(f"\n{to_markdown(table)}" for table in one.tables)


def _plain(text: str) -> str:
    """Without what Markdown would read as emphasis, a link or HTML; our own code between backticks stays."""
    words = " ".join(printable(text).split())
    return re.sub(r"`[^`]+`|[\\`*_<>\[\]]", lambda found: found[0] if len(found[0]) > 1 else f"\\{found[0]}", words)
