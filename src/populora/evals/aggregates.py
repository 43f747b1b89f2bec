"""The rows of the paper's downstream table ("Extended Downstream Evaluation"; its numbers are in ``paper_results.toml``).

The definitions are the paper's, found by recomputing its table (`tests/evals/test_paper_results.py`):
- Code, Math and All are means of 3, 7 and 10 benchmarks, taken before rounding. All rows of a table average the same ones, and a row that
  lacks one of them, or has it graded in part, has no aggregate.
- The spread is the sample standard deviation over the members of a role (n - 1).
- The mean of the population, the paper's headline and the bar of its Figure 2, is over the members of both roles.
- Worst and Best are selected on the test set, for each benchmark by itself, over all adapters of both roles; their aggregates are means of
  these. No single adapter has such a row. Adapters outside a run count only where there are no members of a run.
- One deviation: the spread of an aggregate is the standard deviation of the members' own aggregates, as the paper's caption says. The
  paper prints the mean of the columns' spreads.
"""

import math
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import fmean, stdev
from typing import Any, Literal

from populora.evals.benchmarks import BENCHMARKS
from populora.evals.eval_records import Evaluation

AGGREGATES = {"Code": ("code",), "Math": ("math",), "All": ("code", "math")}
"""The groups of benchmarks that each aggregate averages."""
PAPER_BENCHMARKS = {
    name: [benchmark.name for benchmark in BENCHMARKS.values() if benchmark.group in groups] for name, groups in AGGREGATES.items()
}
ROLES = {"agent": "Agent", "teacher": "Teacher", "student": "Student", "adapter": "Adapter"}

Aggregates = Mapping[str, Sequence[str]]
"""The benchmarks that each aggregate averages in one table."""


@dataclass(frozen=True)
class ScoreCell:
    """A value in per cent and its spread. ``counted`` of ``total`` are items for a member, and members for a mean, worst or best."""

    value: float
    counted: int = 1
    total: int = 1
    std: float | None = None

    @property
    def complete(self) -> bool:
        """True if every item and member is counted. Only complete cells are averaged and compared."""
        return self.counted == self.total


@dataclass(frozen=True)
class ScoreRow:
    """A row of the table. A column that is not in ``cells`` has no value."""

    label: str
    kind: Literal["member", "mean", "worst", "best"]
    cells: Mapping[str, ScoreCell]


def graded_benchmarks(evaluations: Iterable[Evaluation]) -> tuple[str, ...]:
    """List the benchmarks on which anything was graded, in the order of the paper's table."""
    graded = {score.benchmark for evaluation in evaluations for score in evaluation.scores if score.graded}
    return tuple(name for name in BENCHMARKS if name in graded)


def aggregates_over(benchmarks: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Select the benchmarks of each aggregate. An aggregate of none is left out, and All unless there are both code and mathematics."""
    benchmarks = tuple(benchmarks)
    selected = {name: tuple(item for item in benchmarks if BENCHMARKS[item].group in groups) for name, groups in AGGREGATES.items()}
    if not (selected["Code"] and selected["Math"]):
        del selected["All"]
    return {name: averaged for name, averaged in selected.items() if averaged}


def aggregate_title(name: str, averaged: Sequence[str]) -> str:
    """Write the heading of an aggregate: ``Code``, or ``Code (2/3)`` over fewer benchmarks than the paper's."""
    paper_count = len(PAPER_BENCHMARKS[name])
    return name if len(averaged) == paper_count else f"{name} ({len(averaged)}/{paper_count})"


def with_aggregates(cells: Mapping[str, ScoreCell], aggregates: Aggregates) -> dict[str, ScoreCell]:
    """Add the mean of each aggregate whose benchmarks are all there and complete."""
    complete = {name: cell for name, cell in cells.items() if cell.complete}
    means = {
        name: ScoreCell(fmean(complete[item].value for item in averaged))
        for name, averaged in aggregates.items()
        if complete.keys() >= set(averaged)
    }
    return {**cells, **means}


def score_rows(evaluation: Evaluation, aggregates: Aggregates, members: bool = True) -> list[ScoreRow]:
    """Build the rows of one evaluation: bases, population, roles, worst and best, members. A role of one member has that member's row."""
    by_model: dict[str, ScoreRow] = {}
    for model in evaluation.models:
        cells = {name: ScoreCell(score.rate, score.graded, score.items) for name, score in evaluation.scores_of(model.name).items()}
        by_model[model.name] = ScoreRow(model.name, "member", with_aggregates(cells, aggregates))
    by_role = {role: [by_model[model.name] for model in evaluation.models if model.role == role] for role in ROLES}
    rows = [by_model[model.name] for model in evaluation.models if model.role == "base"]
    if by_role["teacher"] and by_role["student"]:
        rows.append(_mean_row("Population", [*by_role["teacher"], *by_role["student"]]))
    for role, in_role in by_role.items():
        rows += [ScoreRow(f"{ROLES[role]} {row.label}", row.kind, row.cells) for row in in_role if len(in_role) == 1]
        rows += [_mean_row(ROLES[role], in_role)] if len(in_role) > 1 else []
    ranked = {role: in_role for role, in_role in by_role.items() if in_role and role != "adapter"} or by_role
    trained = [row for in_role in ranked.values() for row in in_role]
    if len(trained) > 1:
        rows += [_selected_row("worst", min, trained, aggregates), _selected_row("best", max, trained, aggregates)]
    return rows + [row for in_role in by_role.values() if members and len(in_role) > 1 for row in in_role]


def _mean_row(title: str, rows: Sequence[ScoreRow]) -> ScoreRow:
    cells = {
        column: ScoreCell(fmean(values), len(values), len(rows), stdev(values) if len(values) > 1 else None)
        for column, values in _complete_values(rows).items()
    }
    return ScoreRow(f"{title}, mean of {len(rows)}", "mean", cells)


def _selected_row(
    kind: Literal["worst", "best"], select: Callable[[Iterable[float]], float], rows: Sequence[ScoreRow], aggregates: Aggregates
) -> ScoreRow:
    columns = {column: values for column, values in _complete_values(rows).items() if column not in aggregates}
    cells = {column: ScoreCell(select(values), len(values), len(rows)) for column, values in columns.items()}
    return ScoreRow(f"{kind.capitalize()} of {len(rows)}", kind, with_aggregates(cells, aggregates))


def _complete_values(rows: Sequence[ScoreRow]) -> dict[str, list[float]]:
    values: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        for column, cell in row.cells.items():
            values[column] += [cell.value] if cell.complete else []
    return {column: complete for column, complete in values.items() if complete}


@cache
def _paper() -> dict[str, Any]:
    return tomllib.loads((files("populora.evals") / "paper_results.toml").read_text("utf-8"))


def paper_footnotes() -> tuple[str, ...]:
    """Read the footnotes to the paper's numbers."""
    return tuple(_paper()["notes"])


def paper_rows(benchmarks: Sequence[str] = PAPER_BENCHMARKS["All"]) -> dict[str, list[ScoreRow]]:
    """Read the paper's rows over these benchmarks, by block. An aggregate over fewer than the paper's is recomputed, without a spread."""
    selected = [name for name in PAPER_BENCHMARKS["All"] if name in benchmarks]
    blocks = {block["name"]: [_paper_row(row, selected) for row in block["rows"]] for block in _paper()["blocks"]}
    return {name: kept for name, rows in blocks.items() if (kept := [row for row in rows if row.cells])}


def _paper_row(row: Mapping[str, Any], selected: Sequence[str]) -> ScoreRow:
    columns = _paper()["columns"]
    stds = row.get("stds", [None] * len(columns))
    printed = {
        column: ScoreCell(value, std=std) for column, value, std in zip(columns, row["values"], stds, strict=True) if not math.isnan(value)
    }
    cells = {name: printed[name] for name in selected if name in printed}
    for name, averaged in aggregates_over(selected).items():
        if len(averaged) == len(PAPER_BENCHMARKS[name]):
            cells |= {name: printed[name]} if name in printed else {}
        else:
            cells = with_aggregates(cells, {name: averaged})
    return ScoreRow(row["label"], row["kind"], cells)
