"""The downstream table as text: rows of `populora.evals.aggregates`, footnotes, and records for CSV."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from populora.evals.aggregates import (
    PAPER_BENCHMARKS,
    ScoreCell,
    ScoreRow,
    aggregate_title,
    aggregates_over,
    graded_benchmarks,
    paper_footnotes,
    paper_rows,
    score_rows,
)
from populora.evals.benchmarks import BENCHMARKS
from populora.evals.eval_records import PRIMARY, Evaluation, modes_of
from populora.evals.folder import settings_diff, settings_of
from populora.evals.shown_models import describe_hidden, shown_models
from populora.evals.text_table import TextCell, TextRow, TextTable

SELECTED = "†"
_GROUPS = {"code": "Code", "math": "Math", "cruxeval": "CRUXEval", "sql": "SQL", "tiny": "Tiny base", "tiny_sql": "Tiny base of SQL"}
Blocks = list[tuple[str, list[ScoreRow]]]  # the name of each evaluation with its rows


def notes_on_settings(evaluations: Mapping[Path, Evaluation]) -> list[str]:
    """Write a footnote for each setting in which evaluations of one table differ, by their folders."""
    return settings_diff(
        {
            evaluation.name: settings_of(folder, evaluation.models, graded_benchmarks([evaluation]))
            for folder, evaluation in evaluations.items()
        }
    )


def downstream_tables(evaluations: Sequence[Evaluation], paper: bool = False, footnotes: Sequence[str] = ()) -> list[TextTable]:
    """Build the downstream table, and one by extraction mode where graders have several; nothing where nothing was graded."""
    benchmarks = graded_benchmarks(evaluations)
    if not benchmarks:
        return []
    if len(evaluations) == 1:
        evaluations = [replace(evaluations[0], name="")]
    blocks = [(evaluation.name, _shown_rows(evaluation, score_rows(evaluation, aggregates_over(benchmarks)))) for evaluation in evaluations]
    texts = [*_footnotes(benchmarks, [row for _, rows in blocks for row in rows], evaluations), *footnotes]
    published = paper_rows(benchmarks) if paper else {}
    if paper:
        texts += paper_footnotes() if published else ["The paper's table has none of these benchmarks."]
    table = _text_table("Downstream pass@1 (%)", benchmarks, blocks, list(published.values()), texts)
    return [table, _mode_table(evaluations, benchmarks)] if modes_of(evaluations) else [table]


def _shown_rows(evaluation: Evaluation, rows: Sequence[ScoreRow]) -> list[ScoreRow]:
    hidden = {model.name for model in evaluation.models} - {model.name for model in shown_models(evaluation)}
    return [row for row in rows if row.label not in hidden]


def _mode_table(evaluations: Sequence[Evaluation], benchmarks: Sequence[str]) -> TextTable:
    """Build the table of bases and roles in each extraction mode, without worst, best and members."""
    modes = modes_of(evaluations)
    blocks: Blocks = []
    for evaluation in evaluations:
        by_mode = [score_rows(evaluation.with_mode(mode), aggregates_over(benchmarks), members=False) for mode in modes]
        rows = [
            ScoreRow(f"{row.label}, {mode}", "mean", row.cells)
            for rows in zip(*by_mode, strict=True)
            for mode, row in zip(modes, rows, strict=True)
            if row.kind in ("member", "mean")
        ]
        blocks.append((evaluation.name, rows))
    titles: defaultdict[str, list[str]] = defaultdict(list)
    for name in benchmarks:
        titles[BENCHMARKS[name].primary].append(BENCHMARKS[name].title)
    primary = "; ".join(f"{mode} on {', '.join(names)}" for mode, names in titles.items()) if len(titles) > 1 else next(iter(titles))
    footnotes = [f"The score is each benchmark's primary mode ({primary}), which also replaces a mode that a benchmark does not have."]
    return _text_table("The same completions by extraction mode", benchmarks, blocks, [], footnotes, bold=False)


def _text_table(
    caption: str, benchmarks: Sequence[str], blocks: Blocks, published: list[list[ScoreRow]], footnotes: Sequence[str], bold: bool = True
) -> TextTable:
    aggregates = aggregates_over(benchmarks)
    names = (*benchmarks, *aggregates)
    best = {name: _best([row for _, rows in blocks for row in rows], name) if bold else "" for name in names}

    def text_row(row: ScoreRow, prefix: str, best: Mapping[str, str]) -> TextRow:
        mark = SELECTED if row.kind in ("worst", "best") else ""
        return TextRow(f"{prefix} {row.label}{mark}".strip(), tuple(_text_cell(row.cells.get(name), best.get(name, "")) for name in names))

    groups = [(title, len(list(group))) for title, group in groupby(benchmarks, lambda name: _GROUPS[BENCHMARKS[name].group])]
    groups += [("Aggregate", len(aggregates))] if aggregates else []
    titles = [BENCHMARKS[name].title for name in benchmarks] + [aggregate_title(*item) for item in aggregates.items()]
    text_blocks = [tuple(text_row(row, prefix, best) for row in rows) for prefix, rows in blocks]
    text_blocks += [tuple(text_row(row, "", {}) for row in rows) for rows in published]
    return TextTable(caption, tuple(groups), tuple(titles), tuple(text_blocks), tuple(footnotes))


def _best(rows: Sequence[ScoreRow], column: str) -> str:
    """Print the highest complete value of a column; empty for a single one."""
    values = [row.cells[column].value for row in rows if column in row.cells and row.cells[column].complete]
    return f"{max(values):.1f}" if len(values) > 1 else ""


def _text_cell(cell: ScoreCell | None, best: str) -> TextCell:
    if cell is None:
        return TextCell()
    value = f"{cell.value:.1f}"
    spread = "" if cell.std is None else f"±{cell.std:.1f}"
    return TextCell(value + spread + ("" if cell.complete else f" ({cell.counted}/{cell.total})"), bold=cell.complete and value == best)


def _footnotes(benchmarks: Sequence[str], rows: Sequence[ScoreRow], evaluations: Sequence[Evaluation]) -> Iterator[str]:
    if any(cell.std is not None for row in rows for cell in row.cells.values()):
        yield "± is the sample standard deviation over the adapters of a row; of Code, Math and All, over the adapters' own."
    if any(row.kind in ("worst", "best") for row in rows):
        yield (
            f"{SELECTED} Selected on the test set: the worst and the best value of each benchmark by itself over all members, and means of "
            "these. No one adapter has such a row."
        )
    for name, averaged in aggregates_over(benchmarks).items():
        if absent := [BENCHMARKS[benchmark].title for benchmark in PAPER_BENCHMARKS[name] if benchmark not in averaged]:
            yield f"{aggregate_title(name, averaged)} is without {', '.join(absent)}."
    yield from _incomplete(benchmarks, evaluations)
    for evaluation in evaluations:
        prefix = f"{evaluation.name}: " if evaluation.name else ""
        steps = sorted({model.step for model in evaluation.models if model.step is not None})
        if steps:
            yield f"{prefix}Members at step {', '.join(map(str, steps))}."
        if hidden := describe_hidden(evaluation):
            yield prefix + hidden
        for name, reason in evaluation.skipped.items():
            yield f"{prefix}Skipped {name}: {reason.removeprefix(f'{name}: ')}"


def _incomplete(benchmarks: Sequence[str], evaluations: Sequence[Evaluation]) -> Iterator[str]:
    scores = [score for evaluation in evaluations for score in evaluation.scores]
    partial = [score for score in scores if not score.complete and score.benchmark in benchmarks]
    if partial:
        cells = ", ".join(f"{score.model} on {BENCHMARKS[score.benchmark].title} {score.graded}/{score.items}" for score in partial[:4])
        more = f" and {len(partial) - 4} more" if len(partial) > 4 else ""
        yield f"Not graded in full, so in no mean, worst, best or aggregate: {cells}{more}. In brackets: counted items, or members, of all."
    void = {BENCHMARKS[score.benchmark].title: score.void for score in scores if score.void}
    if void:
        counts = ", ".join(f"{count} of {title}" for title, count in void.items())
        yield f"Items that are void, because they are at fault themselves, count neither as correct nor as wrong: {counts}."
    absent = dict.fromkeys(BENCHMARKS[score.benchmark].title for score in scores if score.benchmark not in benchmarks)
    if absent:
        yield f"Not graded at all: {', '.join(absent)}."


def score_records(evaluations: Sequence[Evaluation], paper: bool = False) -> list[dict[str, Any]]:
    """List every cell of the table in every extraction mode, unrounded; the paper's cells have the mode ``published``."""
    benchmarks = graded_benchmarks(evaluations)
    rows = [
        (evaluation.name, mode, row)
        for mode in (PRIMARY, *modes_of(evaluations))
        for evaluation in evaluations
        for row in score_rows(evaluation.with_mode(mode), aggregates_over(benchmarks))
    ]
    if paper and rows:
        rows += [(name, "published", row) for name, block in paper_rows(benchmarks).items() for row in block]
    return [
        {"evaluation": name, "row": row.label, "kind": row.kind, "mode": mode, "column": column, **asdict(cell)}
        for name, mode, row in rows
        for column, cell in row.cells.items()
    ]
