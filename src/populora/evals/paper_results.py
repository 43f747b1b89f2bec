"""The paper's own downstream table (``paper_results.toml``), to print below ours."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Any

from populora.evals.aggregates import AGGREGATES, ScoreCell, ScoreRow, aggregates_over


@cache
def _read() -> dict[str, Any]:
    return tomllib.loads((files("populora.evals") / "paper_results.toml").read_text("utf-8"))


def paper_notes() -> tuple[str, ...]:
    """Footnotes to the paper's numbers."""
    return tuple(_read()["notes"])


def paper_rows(benchmarks: Sequence[str] | None = None) -> dict[str, list[ScoreRow]]:
    """The paper's rows over these benchmarks, or over all ten, by block of its table.

    An aggregate over fewer benchmarks than the paper's is recomputed from the rounded values and has no spread.
    """
    columns = _read()["columns"]
    selected = [one for one in columns if one not in AGGREGATES and (benchmarks is None or one in benchmarks)]
    blocks = {block["name"]: [_row(row, columns, selected) for row in block["rows"]] for block in _read()["blocks"]}
    kept = {name: [row for row in rows if row.cells] for name, rows in blocks.items()}
    return {name: rows for name, rows in kept.items() if rows}


def _row(row: Mapping[str, Any], columns: Sequence[str], selected: Sequence[str]) -> ScoreRow:
    stds = row.get("stds", [None] * len(columns))
    printed = {
        column: ScoreCell(value, std=std, column_std=std if column in AGGREGATES else None)
        for column, value, std in zip(columns, row["values"], stds, strict=True)
        if not math.isnan(value)
    }
    paper = aggregates_over(one for one in columns if one not in AGGREGATES)
    cells = {one: printed[one] for one in selected if one in printed}
    for name, over in aggregates_over(selected).items():
        if over == paper[name] and name in printed:
            cells[name] = printed[name]
        elif over != paper[name] and cells.keys() >= set(over):
            cells[name] = ScoreCell(fmean(cells[one].value for one in over))
    return ScoreRow(row["label"], row["kind"], cells)
