"""The downstream table as it is printed: the words, marks and notes around `populora.evals.tables`, and its cells as records for CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import Any

from populora.evals.benchmarks import BENCHMARKS, release_of
from populora.evals.layout import Entry, Layout, Line
from populora.evals.notes import SELECTED, notes_of, paper_notes
from populora.evals.published import published
from populora.evals.results import HEADLINE, Evaluation, read_as, readings_of
from populora.evals.tables import Block, Cell, Row, Table, best_of, downstream, heading

_GROUPS = {"code": "Code", "math": "Math", "cruxeval": "CRUXEval", "tiny": "Tiny base"}


def tables(
    evaluations: Sequence[Evaluation], members: bool = True, with_published: bool = False, remarks: Sequence[str] = ()
) -> list[Layout]:
    """The downstream table, and where readings were reported the same with a row for each of them (`readings`).

    ``with_published`` lays the paper's table under ours; ``remarks`` are more notes. Nothing where nothing was graded.
    """
    table = downstream(evaluations, members)
    if not table.benchmarks:
        return []
    paper = published(table.comparable) if with_published else []
    beside = replace(table, blocks=(*table.blocks, *paper))
    notes = [*notes_of(beside, evaluations), *remarks, *(paper_notes(table) if with_published else ())]
    first = _layout("Downstream pass@1 (%)", beside, notes)
    return [first, readings(evaluations)] if readings_of(evaluations) else [first]


def readings(evaluations: Sequence[Evaluation]) -> Layout:
    """Bases and roles, without worst, best and members, in each reading of the completions side by side."""
    names = readings_of(evaluations)
    headline = downstream(evaluations, members=False)
    counted = [downstream([read_as(one, name) for one in evaluations], members=False) for name in names]
    blocks = [
        Block(block.name, tuple(Row(f"{row.label}, {name}", row.kind, row.cells) for name, row in _beside(names, counted, number)))
        for number, block in enumerate(headline.blocks)
    ]
    notes = [
        f"The table above counts the headline reading of each benchmark: {_headlines(headline.benchmarks)}.",
        "Where a benchmark has no such reading, its headline stands in the row and in its means.",
    ]
    return _layout("The same completions, by how they are read", replace(headline, blocks=tuple(blocks)), notes, best=False)


def _beside(names: Sequence[str], counted: Sequence[Table], number: int) -> Iterator[tuple[str, Row]]:
    """The rows of a block, each in all readings."""
    for rows in zip(*(table.blocks[number].rows for table in counted), strict=True):
        if rows[0].kind in ("member", "mean"):
            yield from zip(names, rows, strict=True)


def _headlines(benchmarks: Sequence[str]) -> str:
    """``lenient``, or which are which."""
    titles: dict[str, list[str]] = {}
    for name in benchmarks:
        titles.setdefault(BENCHMARKS[name].headline, []).append(BENCHMARKS[name].title)
    return "".join(titles) if len(titles) == 1 else "; ".join(f"{reading} on {', '.join(of)}" for reading, of in titles.items())


def records(evaluations: Sequence[Evaluation], with_published: bool = False) -> list[dict[str, Any]]:
    """Every cell of the table in every reading, unrounded, with members; the paper's have the reading ``published``. What was skipped has a
    record without a value, of the kind ``skipped``. ``remark`` is the reason then, else the release of a benchmark that has several."""
    found: list[dict[str, Any]] = []
    for reading in (HEADLINE, *readings_of(evaluations)):
        table = downstream([read_as(one, reading) for one in evaluations])
        for block, evaluation in zip(table.blocks, evaluations, strict=True):
            releases = {score.benchmark: release_of(BENCHMARKS[score.benchmark], score.items) for score in evaluation.scores}
            found += [_record(block.name, row, reading, column, releases.get(column, "")) for row in block.rows for column in row.cells]
    if not found:
        return []
    for evaluation in evaluations:
        found += [_absent(evaluation.name, name, reason) for name, reason in evaluation.skipped.items()]
    blocks = published(downstream(evaluations).comparable) if with_published else ()
    return found + [_record(block.name, row, "published", column) for block in blocks for row in block.rows for column in row.cells]


def _record(name: str, row: Row, reading: str, column: str, remark: str = "") -> dict[str, Any]:
    where = {"evaluation": name, "row": row.label, "kind": row.kind, "reading": reading, "column": column}
    return {**where, **asdict(row.cells[column]), "remark": remark}


def _absent(evaluation: str, name: str, reason: str) -> dict[str, Any]:
    row, column = ("", name) if name in BENCHMARKS else (name, "")
    nothing = {**dict.fromkeys(asdict(Cell(0.0))), "counted": 0, "of": 0}
    return {"evaluation": evaluation, "row": row, "kind": "skipped", "reading": "", "column": column, **nothing, "remark": reason}


def _layout(caption: str, table: Table, notes: Sequence[str], best: bool = True) -> Layout:
    over = table.over
    groups = [(_GROUPS[group], len(list(own))) for group, own in groupby(BENCHMARKS[name].group for name in table.benchmarks)]
    titles = [table.title(name) for name in table.benchmarks]
    columns = (*table.benchmarks, *over)
    highest = {column: best_of(table, column) if best else {} for column in columns}
    several = len([block for block in table.blocks if not block.origin]) > 1

    def line(block: Block, row: Row) -> Line:
        of = f"{block.name} " if several and not block.origin else ""
        mark = SELECTED if row.kind in ("worst", "best") else ""
        return Line(of + row.label + mark, tuple(_entry(row.cells.get(one), highest[one].get(block.origin, "")) for one in columns))

    blocks = tuple(tuple(line(block, row) for row in block.rows) for block in table.blocks)
    aggregate = [("Aggregate", len(over))] if over else []
    return Layout(caption, (*groups, *aggregate), (*titles, *(heading(*one) for one in over.items())), blocks, tuple(notes))


def _entry(cell: Cell | None, highest: str) -> Entry:
    if cell is None:
        return Entry()
    value = f"{cell.value:.1f}"
    remark = "" if cell.whole else f"({cell.counted}/{cell.of})"
    return Entry(value, "" if cell.std is None else f"{cell.std:.1f}", remark, bold=cell.whole and value == highest)
