"""What stands under the downstream table: what its numbers mean and do not mean, and what is missing from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from populora.evals.benchmarks import BENCHMARKS, release_of
from populora.evals.published import published, published_notes
from populora.evals.results import Evaluation
from populora.evals.tables import Row, Table, absent_from, heading

SELECTED = "†"


def notes_of(table: Table, evaluations: Sequence[Evaluation]) -> Iterator[str]:
    """What its numbers mean, what is not in them, and what the evaluations are of."""
    rows = _rows(table)
    if any(cell.std is not None for row in rows for cell in row.cells.values()):
        yield "± is the sample standard deviation over the members of a role; of Code, Math and All, over the members' own."
    if any(row.kind in ("worst", "best") for row in rows):
        yield (
            f"{SELECTED} Selected on the test set: the worst and the best value of each benchmark by itself over all members, and means of "
            "these. No one adapter has such a row."
        )
        if any({"adapter"} < {source.role for source in one.sources} - {"base"} for one in evaluations):
            yield "Adapters that were given by themselves are not among the members that worst and best are of."
    for name, over in table.over.items():
        if absent := absent_from(name, over):
            yield f"{heading(name, over)} is without {', '.join(BENCHMARKS[one].title for one in absent)}."
    yield from _releases(table)
    yield from _incomplete(table, evaluations)
    for evaluation in evaluations:
        of = f"{evaluation.name}: " if len(evaluations) > 1 else ""
        yield from (of + note for note in (*_steps(evaluation), *_skipped(evaluation)))


def _releases(table: Table) -> Iterator[str]:
    """Which release a benchmark is, where there are several."""
    for name in table.benchmarks:
        which = BENCHMARKS[name]
        others = [items for items in table.sizes.get(name, ()) if items != which.items]
        if others:
            what = "; ".join(release_of(which, items) or f"{items} items, not {which.items}" for items in others)
            yield f"{table.title(name)} is {what}: it is in no aggregate, and the paper's column is not beside it."
        elif which.release:
            yield f"{which.title} is {which.release}."


def _steps(evaluation: Evaluation) -> Iterator[str]:
    by_step: dict[int, list[str]] = {}
    for source in evaluation.sources:
        if source.name in evaluation.steps:
            by_step.setdefault(evaluation.steps[source.name], []).append(source.name)
    if by_step:
        yield "Members as they were: " + "; ".join(f"{', '.join(names)} at step {step}" for step, names in sorted(by_step.items())) + "."


def _skipped(evaluation: Evaluation) -> Iterator[str]:
    for name, reason in evaluation.skipped.items():
        yield f"Skipped {name}: {reason.removeprefix(f'{name}: ')}"


def paper_notes(ours: Table) -> Iterator[str]:
    """What a reader of the paper's numbers below ours should know."""
    if not published(ours.comparable):
        yield "The paper's table has none of these benchmarks."
        return
    yield from published_notes()
    rows = [(row.label, [row.cells[name].column_std for name in ours.over if name in row.cells]) for row in _rows(ours)]
    spreads = [f"{label} {'/'.join(f'{one:.1f}' for one in found if one is not None)}" for label, found in rows if any(found)]
    if spreads:
        yield f"By the paper's rule for aggregates our ± would be: {', '.join(spreads)} ({'/'.join(ours.over)})."


def _rows(table: Table) -> list[Row]:
    return [row for block in table.blocks for row in block.rows]


def _incomplete(table: Table, evaluations: Sequence[Evaluation]) -> Iterator[str]:
    scores = [score for evaluation in evaluations for score in evaluation.scores]
    part = [score for score in scores if not score.complete and score.benchmark in table.benchmarks]
    if part:
        some = ", ".join(f"{one.source} on {BENCHMARKS[one.benchmark].title} {one.graded}/{one.items}" for one in part[:4])
        more = f" and {len(part) - 4} more" if len(part) > 4 else ""
        yield f"Not graded in full, so in no mean, worst, best or aggregate: {some}{more}."
        yield "In brackets: items graded of all; in a mean, worst or best, members counted of all. Bold is the best of what is whole."
    never = dict.fromkeys(BENCHMARKS[score.benchmark].title for score in scores if score.benchmark not in table.benchmarks)
    if never:
        yield f"Asked for, but not graded at all: {', '.join(never)}."
