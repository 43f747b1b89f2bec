"""The paper's downstream table (its appendix "Extended Downstream Evaluation"): base, roles as mean ± std, worst, best, and every member.

What its numbers mean was found by computing them again (`tests/evals/test_published.py`), and is done the same way here but for one thing:

- Code, Math and All are the means of 3, 7 and 10 benchmarks, taken before rounding. Where fewer were evaluated, the heading says over how
  many, and all rows of a table are over the same ones: a row that lacks one of them, or has it graded only in part, has no aggregate.
  A LiveCodeBench of another size than the paper's release is in none.
- The spread is the sample standard deviation over the members of a role (n - 1).
- Worst and Best are taken for each benchmark by itself over all adapters of both roles, and their aggregates are means of those: no single
  adapter has such a row, though the caption says so. They are selected on the test set. Adapters that were given by themselves are among
  them only where there are no members of a run.
- The spread of an aggregate is in the paper the mean of its columns' spreads. Here it is what the caption says, the standard deviation of
  the members' own aggregates; the paper's is kept beside it (`Cell.column_std`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Literal

from populora.evals.benchmarks import BENCHMARKS, other_size
from populora.evals.results import Evaluation, Score

AGGREGATES = {"Code": ("code",), "Math": ("math",), "All": ("code", "math")}
"""By column: whose benchmarks it averages."""

_PAPER = {name: [one.name for one in BENCHMARKS.values() if one.group in groups] for name, groups in AGGREGATES.items()}

Kind = Literal["member", "mean", "worst", "best"]
Over = Mapping[str, Sequence[str]]
"""By aggregate: the benchmarks that it is the mean of."""
_ROLES = {"agent": "Baseline (agent)", "teacher": "Teacher", "student": "Student", "adapter": "Adapter"}


@dataclass(frozen=True)
class Cell:
    """A value in per cent, and how much of what it should cover it does: items for a member, members for a mean, worst or best."""

    value: float
    counted: int = 1
    of: int = 1
    std: float | None = None
    """Sample standard deviation over the members; none for a single one."""
    column_std: float | None = None
    """Of an aggregate: the mean of its columns' ``std``, which is what the paper prints as ±."""

    @property
    def whole(self) -> bool:
        """Whether it covers all: only such cells are averaged and compared."""
        return self.counted == self.of


@dataclass(frozen=True)
class Row:
    """A line of the table; a column that is not in ``cells`` has no value."""

    label: str
    kind: Kind
    cells: Mapping[str, Cell]


@dataclass(frozen=True)
class Block:
    """The rows of one evaluation, or of one part of the paper's table."""

    name: str
    rows: tuple[Row, ...]
    origin: str = ""
    """Where the numbers come from: empty for ours. The best of a column is sought among rows of one origin."""


@dataclass(frozen=True)
class Table:
    """``benchmarks`` are its columns; the aggregates follow (``over``)."""

    benchmarks: tuple[str, ...]
    blocks: tuple[Block, ...]
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Of benchmarks that are not the paper's: how many items the evaluations have."""

    @property
    def comparable(self) -> tuple[str, ...]:
        """The benchmarks that are the paper's: only these are averaged, and stand beside its numbers."""
        return tuple(name for name in self.benchmarks if name not in self.sizes)

    @property
    def over(self) -> dict[str, tuple[str, ...]]:
        """By aggregate: the benchmarks that it is over."""
        return averaged(self.comparable)

    def title(self, name: str) -> str:
        """Of a benchmark's column: ``LCB``, or ``LCB (10)`` where it has other than the paper's items."""
        sizes = ", ".join(map(str, self.sizes.get(name, ())))
        return f"{BENCHMARKS[name].title} ({sizes})" if sizes else BENCHMARKS[name].title


def downstream(evaluations: Sequence[Evaluation], members: bool = True) -> Table:
    """A block for each evaluation, over all benchmarks on which anything was graded; ``members``: with a row for each of them."""
    graded = {score.benchmark for evaluation in evaluations for score in evaluation.scores if score.graded}
    benchmarks = tuple(name for name in BENCHMARKS if name in graded)
    table = Table(benchmarks, (), _sizes(benchmarks, evaluations))
    return replace(table, blocks=tuple(_block(evaluation, table.over, members) for evaluation in evaluations))


def _sizes(benchmarks: Sequence[str], evaluations: Sequence[Evaluation]) -> dict[str, tuple[int, ...]]:
    found: dict[str, set[int]] = {}
    for score in (score for evaluation in evaluations for score in evaluation.scores if score.benchmark in benchmarks):
        found.setdefault(score.benchmark, set()).add(score.items)
    return {name: tuple(sorted(sizes)) for name, sizes in found.items() if any(other_size(name, items) for items in sizes)}


def averaged(benchmarks: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """By aggregate: the benchmarks that it is over. One that has none is left out, and All unless there are both code and math."""
    benchmarks = tuple(benchmarks)
    found = {name: tuple(one for one in benchmarks if BENCHMARKS[one].group in groups) for name, groups in AGGREGATES.items()}
    if not (found["Code"] and found["Math"]):
        del found["All"]
    return {name: over for name, over in found.items() if over}


def heading(name: str, over: Sequence[str]) -> str:
    """``Code``, or ``Code (2/3)`` where it is over fewer benchmarks than the paper's."""
    return f"{name} ({len(over)}/{len(_PAPER[name])})" if absent_from(name, over) else name


def absent_from(name: str, over: Sequence[str]) -> list[str]:
    """The benchmarks of the paper's aggregate that this one is not over."""
    return [one for one in _PAPER[name] if one not in over]


def with_aggregates(cells: Mapping[str, Cell], over: Over) -> dict[str, Cell]:
    """The cells and the mean of each aggregate whose benchmarks are all there and whole."""
    whole = {name: cell for name, cell in cells.items() if cell.whole}
    found = {name: Cell(fmean(whole[one].value for one in names)) for name, names in over.items() if whole.keys() >= set(names)}
    return {**cells, **found}


def best_of(table: Table, column: str) -> dict[str, str]:
    """By origin: the highest value of a column as it is printed, among whole cells; nothing where there is only one to compare, or where
    the items are not the same."""
    if len(table.sizes.get(column, ())) > 1:
        return {}
    found: dict[str, list[float]] = {}
    for block in table.blocks:
        found.setdefault(block.origin, []).extend(row.cells[column].value for row in block.rows if _shown_whole(row, column))
    return {origin: f"{max(values):.1f}" for origin, values in found.items() if len(values) > 1}


def _shown_whole(row: Row, column: str) -> bool:
    return column in row.cells and row.cells[column].whole


def _block(evaluation: Evaluation, over: Over, members: bool) -> Block:
    """Bases, roles, worst and best, members. A role of one member is that member's row."""
    own = {source.name: _member(source.name, evaluation.of(source.name), over) for source in evaluation.sources}
    roles = {role: [own[source.name] for source in evaluation.sources if source.role == role] for role in _ROLES}
    rows = [own[source.name] for source in evaluation.sources if source.role == "base"]
    for role, of_role in roles.items():
        if len(of_role) > 1:
            rows.append(_mean(f"{_ROLES[role]}, mean of {len(of_role)}", of_role, over))
        rows += [Row(f"{_ROLES[role]} {row.label}", row.kind, row.cells) for row in of_role if len(of_role) == 1]
    ranked = {role: of_role for role, of_role in roles.items() if of_role and role != "adapter"} or roles
    trained = [row for of_role in ranked.values() for row in of_role]
    averages = any(len(of_role) > 1 for of_role in roles.values())
    if any(len(of_role) > 1 for of_role in ranked.values()):
        rows += [_extreme(f"Worst of {len(trained)}", "worst", min, trained, over)]
        rows += [_extreme(f"Best of {len(trained)}", "best", max, trained, over)]
    if averages and members:
        rows += [row for of_role in roles.values() if len(of_role) > 1 for row in of_role]
    return Block(evaluation.name, tuple(rows))


def _member(name: str, scores: Mapping[str, Score], over: Over) -> Row:
    cells = {one: Cell(score.rate, score.graded, score.items) for one, score in scores.items()}
    return Row(name, "member", with_aggregates(cells, over))


def _mean(label: str, rows: Sequence[Row], over: Over) -> Row:
    cells: dict[str, Cell] = {}
    for column, values in _whole_values(rows).items():
        std = stdev(values) if len(values) > 1 else None
        spreads = [cells[one].std for one in over.get(column, ())]  # benchmarks stand before the aggregates over them
        known = [spread for spread in spreads if spread is not None]
        column_std = fmean(known) if known and len(known) == len(spreads) else None
        cells[column] = Cell(fmean(values), len(values), len(rows), std, column_std)
    return Row(label, "mean", cells)


def _extreme(label: str, kind: Kind, choose: Callable[[Iterable[float]], float], rows: Sequence[Row], over: Over) -> Row:
    found = {column: Cell(choose(values), len(values), len(rows)) for column, values in _whole_values(rows).items() if column not in over}
    return Row(label, kind, with_aggregates(found, over))


def _whole_values(rows: Sequence[Row]) -> dict[str, list[float]]:
    """By column: the values of the rows that have it whole."""
    columns = dict.fromkeys(column for row in rows for column in row.cells)
    found = {column: [row.cells[column].value for row in rows if _shown_whole(row, column)] for column in columns}
    return {column: values for column, values in found.items() if values}
