"""A table of text, and how it looks on a terminal (rich) and in Markdown; `populora.evals.latex` sets it for a paper."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

ABSENT = "–"
_EDGES, _BETWEEN = 2, 3
"""Characters that rich spends on the two sides of a table, and before each column."""


@dataclass(frozen=True)
class Entry:
    """What stands in a cell: a value, its spread after ±, and a remark such as ``(3/4)``."""

    value: str = ABSENT
    spread: str = ""
    remark: str = ""
    bold: bool = False

    @property
    def plain(self) -> str:
        """As text."""
        return self.value + (f"±{self.spread}" if self.spread else "") + (f" {self.remark}" if self.remark else "")


@dataclass(frozen=True)
class Line:
    """A line: its label and an entry for each column."""

    label: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Layout:
    """``groups`` stand over so many columns each and sum to all of them; between ``blocks`` there is a rule."""

    caption: str
    groups: tuple[tuple[str, int], ...]
    columns: tuple[str, ...]
    blocks: tuple[tuple[Line, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        wide = {len(self.columns), sum(count for _, count in self.groups), *(len(line.entries) for line in self.lines)}
        if len(wide) > 1:
            raise ValueError(f"expected columns, groups and lines of one width, got {sorted(wide)}")

    @property
    def lines(self) -> list[Line]:
        """Of all blocks."""
        return [line for block in self.blocks for line in block]


def terminal(layout: Layout, width: int) -> RenderableType:
    """For a terminal of ``width`` columns: as many tables under one another as it takes."""
    parts = [_part(layout, start, stop) for start, stop in _parts(layout, width)]
    notes = [Text(note, "dim") for note in layout.notes]
    return Group(Text(layout.caption, "bold"), *parts, *notes)


def markdown(layout: Layout) -> str:
    """A Markdown table with its caption and notes."""
    rows = [["", *map(_escaped, layout.columns)], ["---", *["---:"] * len(layout.columns)]]
    rows += [[_escaped(line.label), *map(_markdown_entry, line.entries)] for line in layout.lines]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    notes = "".join(f"\n- {_escaped(note)}" for note in layout.notes)
    return f"{_escaped(layout.caption)}\n\n{table}\n" + (f"{notes}\n" if notes else "")


def _markdown_entry(entry: Entry) -> str:
    return f"**{_escaped(entry.plain)}**" if entry.bold else _escaped(entry.plain)


def _escaped(text: str) -> str:
    """Without what Markdown would read as a column, emphasis, a link or HTML."""
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", " ".join(text.split()))


def _part(layout: Layout, start: int, stop: int) -> Table:
    """Some of the columns, with a group's name over its first one here."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", overflow="fold")
    for index in range(start, stop):
        table.add_column(Text(f"{_over(layout, index, start)}\n{layout.columns[index]}"), justify="right", no_wrap=True)
    for block in layout.blocks:
        for line in block:
            cells = [Text(entry.plain, "bold" if entry.bold else "") for entry in line.entries[start:stop]]
            table.add_row(Text(line.label), *cells, end_section=line is block[-1])
    return table


def _parts(layout: Layout, width: int) -> Iterator[tuple[int, int]]:
    """Runs of columns that fit beside the labels."""
    beside = min(_longest([line.label for line in layout.lines]), width // 3) + _EDGES
    start, used = 0, beside
    for index in range(len(layout.columns)):
        if used + _wide(layout, index, start) > width and index > start:
            yield start, index
            start, used = index, beside
        used += _wide(layout, index, start)
    yield start, len(layout.columns)


def _wide(layout: Layout, index: int, start: int) -> int:
    """Of a column in a table that begins with column ``start``."""
    return _BETWEEN + _longest([_over(layout, index, start), layout.columns[index], *(line.entries[index].plain for line in layout.lines)])


def _over(layout: Layout, index: int, start: int) -> str:
    """What stands over a column in a table that begins with column ``start``: the name of its group, if it is the first of it there."""
    names = [name for name, count in layout.groups for _ in range(count)]
    return names[index] if index == start or names[index] != names[index - 1] else ""


def _longest(texts: Sequence[str]) -> int:
    return max((cell_len(text) for text in texts), default=0)
