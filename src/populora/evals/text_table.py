"""Tables of text: printed on a terminal with rich, and written as Markdown, LaTeX (booktabs) and CSV."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from populora.core.files import make_folder, write_file
from populora.core.output import OutputConsole

ABSENT = "–"


@dataclass(frozen=True)
class TextCell:
    """A value such as ``73.3±1.6 (3/4)``."""

    text: str = ABSENT
    bold: bool = False


@dataclass(frozen=True)
class TextRow:
    """A label and a cell for each column."""

    label: str
    cells: tuple[TextCell, ...]


@dataclass(frozen=True)
class TextTable:
    """A table. ``groups`` are headings over a number of columns each; a rule separates ``blocks`` of rows."""

    caption: str
    groups: tuple[tuple[str, int], ...]
    columns: tuple[str, ...]
    blocks: tuple[tuple[TextRow, ...], ...]
    footnotes: tuple[str, ...] = ()

    @property
    def rows(self) -> list[TextRow]:
        """The rows of all blocks."""
        return [row for block in self.blocks for row in block]


def print_table(table: TextTable, console: Console | None = None) -> None:
    """Print the table; columns that do not fit the console's width continue in another table below."""
    console = console or OutputConsole()
    console.print(Text(table.caption, "bold"))
    unlimited, start = console.options.update(max_width=10_000), 0
    while start < len(table.columns):
        for stop in range(len(table.columns), start, -1):
            part = _rich_table(table, start, stop)
            if stop == start + 1 or console.measure(part, options=unlimited).maximum <= console.width:
                console.print(part)
                start = stop
                break
    for note in table.footnotes:
        console.print(Text(note, "dim"))


def _rich_table(table: TextTable, start: int, stop: int) -> Table:
    """Lay out the columns from ``start`` to ``stop``; the name of a group is above its first column."""
    groups = [name for name, count in table.groups for _ in range(count)]
    part = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    part.add_column("", overflow="fold")
    for index in range(start, stop):
        group = groups[index] if index == start or groups[index] != groups[index - 1] else ""
        part.add_column(Text(f"{group}\n{table.columns[index]}"), justify="right", no_wrap=True)
    for block in table.blocks:
        for row in block:
            cells = [Text(cell.text, "bold" if cell.bold else "") for cell in row.cells[start:stop]]
            part.add_row(Text(row.label), *cells, end_section=row is block[-1])
    return part


def to_markdown(table: TextTable) -> str:
    """Write the table in Markdown, with its caption and footnotes."""
    rows = [["", *map(escape_markdown, table.columns)], ["---", *["---:"] * len(table.columns)]]
    rows += [[escape_markdown(row.label), *map(_markdown_cell, row.cells)] for row in table.rows]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    notes = "".join(f"\n- {escape_markdown(note)}" for note in table.footnotes)
    return f"{escape_markdown(table.caption)}\n\n{lines}\n" + (f"{notes}\n" if notes else "")


def escape_markdown(text: str) -> str:
    """Escape what Markdown would read as a column, emphasis, a link or HTML."""
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", " ".join(text.split()))


def _markdown_cell(cell: TextCell) -> str:
    return f"**{escape_markdown(cell.text)}**" if cell.bold else escape_markdown(cell.text)


def to_latex(table: TextTable, label: str) -> str:
    """Write the table in LaTeX, as the paper sets its own; it needs booktabs and graphicx. ``label`` is its name for ``\\ref``."""
    columns = r" @{\hskip 4pt} ".join(f"*{{{count}}}{{r}}" for _, count in table.groups)
    groups = " & ".join(["", *(rf"\multicolumn{{{count}}}{{c}}{{{escape_latex(name)}}}" for name, count in table.groups)])
    edges = pairwise(accumulate((count for _, count in table.groups), initial=1))
    spans = [(start + 1, stop) for (name, _), (start, stop) in zip(table.groups, edges, strict=True) if name]
    rules = " ".join(rf"\cmidrule(lr){{{start}-{stop}}}" for start, stop in spans)
    lines = [
        r"\begin{table}[h]", r"\centering", r"\resizebox{\textwidth}{!}{%", rf"\begin{{tabular}}{{l {columns}}}", r"\toprule",
        rf"{groups} \\", rules, " & ".join(["", *map(escape_latex, table.columns)]) + r" \\",
    ]  # fmt: skip
    for block in table.blocks:
        lines += [r"\midrule", *(" & ".join([escape_latex(row.label), *map(_latex_cell, row.cells)]) + r" \\" for row in block)]
    caption = " ".join([rf"\textbf{{{escape_latex(table.caption)}}}", *map(escape_latex, table.footnotes)])
    lines += [r"\bottomrule", r"\end{tabular}}", rf"\caption{{{caption}}}", rf"\label{{{label}}}", r"\end{table}"]
    return "\n".join(lines) + "\n"


_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "±": r"$\pm$", "†": r"\textdagger{}", "−": r"$-$", "–": "--", "×": r"$\times$", "≤": r"$\leq$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}  # fmt: skip


def escape_latex(text: str) -> str:
    """Escape the text for LaTeX, on one line. A leading bracket or star is kept from the line break before it."""
    plain = " ".join(text.split())
    escaped = "".join(_LATEX.get(character, character) for character in plain)
    return "{}" + escaped if plain[:1] in ("[", "*") else escaped


def _latex_cell(cell: TextCell) -> str:
    """Write the value, with a spread (``±1.6``) and a count (``(3/4)``) in a smaller size."""
    value, spread, count = re.fullmatch(r"(.*?)(±[\d.]+)?( \(\d+/\d+\))?", cell.text).groups(default="")  # type: ignore[union-attr]
    bold = rf"\textbf{{{escape_latex(value)}}}" if cell.bold else escape_latex(value)
    small = rf"{{\scriptsize{escape_latex(spread)}}}" if spread else ""
    return bold + small + (rf"\,{{\scriptsize {escape_latex(count)}}}" if count else "")


def write_tables(folder: Path, name: str, tables: Sequence[TextTable], records: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Write ``name.md``, ``name.tex`` and ``name.csv`` (the unrounded ``records``) into ``folder``. Raises `RunDirectoryError`."""
    labels = [f"tab:{name}" + (f"-{number}" if number > 1 else "") for number in range(1, len(tables) + 1)]
    values = io.StringIO()
    writer = csv.DictWriter(values, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    texts = {"md": "\n".join(map(to_markdown, tables)), "tex": "\n".join(map(to_latex, tables, labels)), "csv": values.getvalue()}
    make_folder(folder)
    for ending, text in texts.items():
        write_file(folder / f"{name}.{ending}", text.encode())
    return [folder / f"{name}.{ending}" for ending in texts]
