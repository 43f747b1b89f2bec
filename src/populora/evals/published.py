"""The paper's own downstream table, to lay beside ours: ``published.toml``, which also says where the paper is not at one with itself."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Any

from populora.evals.tables import AGGREGATES, Block, Cell, Row, averaged


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads((files("populora.evals") / "published.toml").read_text("utf-8"))


def published_notes() -> tuple[str, ...]:
    """What a reader of the paper's numbers should know, for the foot of a table."""
    return tuple(_file()["notes"])


def published(benchmarks: Sequence[str] | None = None) -> list[Block]:
    """The paper's rows over these benchmarks, or over all ten.

    An aggregate over fewer benchmarks than the paper's is computed again from its rounded values, so that a column means the same in every
    row; it has no spread.
    """
    columns = _file()["columns"]
    chosen = [one for one in columns if one not in AGGREGATES and (benchmarks is None or one in benchmarks)]
    blocks = [
        Block(block["name"], tuple(_row(row, columns, chosen) for row in block["rows"]), block["origin"]) for block in _file()["blocks"]
    ]
    shown = [Block(block.name, tuple(row for row in block.rows if row.cells), block.origin) for block in blocks]
    return [block for block in shown if block.rows]


def _row(row: Mapping[str, Any], columns: Sequence[str], chosen: Sequence[str]) -> Row:
    stds = row.get("stds", [None] * len(columns))
    printed = {
        column: Cell(value, std=std, column_std=std if column in AGGREGATES else None)
        for column, value, std in zip(columns, row["values"], stds, strict=True)
        if not math.isnan(value)
    }
    paper = averaged(one for one in columns if one not in AGGREGATES)
    cells = {one: printed[one] for one in chosen if one in printed}
    for name, over in averaged(chosen).items():
        if over == paper[name] and name in printed:
            cells[name] = printed[name]
        elif over != paper[name] and cells.keys() >= set(over):
            cells[name] = Cell(fmean(cells[one].value for one in over))
    return Row(row["label"], row["kind"], cells)
