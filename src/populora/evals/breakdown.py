"""The tiny suite by task type and length of the programs: where a member gains and where it loses. Counted as its headline is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from populora.evals.benchmarks import BENCHMARKS
from populora.evals.data import find_data, load_items
from populora.evals.folder import Description
from populora.evals.layout import Entry, Layout, Line
from populora.evals.records import Grade, Item, read_grades
from populora.evals.results import verdict_file

TINY = "tiny"
_FIELDS = {"by task": "task", "by statements": "author"}
"""The suite keeps the level of an item where a run's problems have their author."""


def breakdown(folder: Path, description: Description) -> list[Layout]:
    """One table with a line for each source that has verdicts on the suite; none where there is no such source."""
    if TINY not in description.benchmarks:
        return []
    items = load_items(BENCHMARKS[TINY], find_data(BENCHMARKS[TINY]))
    groups = {heading: _grouped(items, field) for heading, field in _FIELDS.items()}
    graded = {source.name: read_grades(verdict_file(folder, TINY, source.name)) for source in description.sources}
    lines = [
        Line(name, tuple(_entry(grades, names) for own in groups.values() for names in own.values()))
        for name, grades in graded.items()
        if grades
    ]
    columns = tuple(name.removeprefix("level-") for own in groups.values() for name in own)
    spans = tuple((heading, len(own)) for heading, own in groups.items())
    return [Layout("The tiny suite: per cent right", spans, columns, (tuple(lines),))] if lines else []


def _grouped(items: Sequence[Item], field: str) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for item in items:
        groups.setdefault(item.fields[field], []).append(item.id)
    return groups


def _entry(grades: Mapping[str, Grade], names: Sequence[str]) -> Entry:
    known = [grades[name].correct for name in names if name in grades]
    remark = "" if len(known) == len(names) else f"({len(known)}/{len(names)})"
    return Entry(f"{100 * fmean(known):.1f}" if known else "–", remark=remark)
