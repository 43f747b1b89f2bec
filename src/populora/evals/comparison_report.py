"""Comparisons as they are printed: a table for each arm, with what its numbers say and what not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from populora.evals.benchmarks import BENCHMARKS, other_size, release_of
from populora.evals.comparison import Difference
from populora.evals.layout import ABSENT, Entry, Layout, Line
from populora.evals.paired import CONFIDENCE
from populora.evals.results import HEADLINE
from populora.evals.tables import Over, averaged, heading

SURE = 0.05


def comparisons(differences: Iterable[Difference], confidence: float = CONFIDENCE, remarks: Sequence[str] = ()) -> list[Layout]:
    """A table for each arm: both scores, the difference and its interval, and the tests; ``remarks`` are more notes."""
    return [_comparison(list(own), confidence, remarks) for _, own in groupby(differences, lambda one: one.arm)]


def _comparison(differences: Sequence[Difference], confidence: float, remarks: Sequence[str]) -> Layout:
    arm, against = differences[0].arm, differences[0].against
    over = averaged(one.column for one in differences if one.p is not None and not other_size(one.column, one.of))
    blocks = [tuple(_line(one, over) for one in own) for _, own in groupby(differences, lambda one: one.p is None)]
    tests = " and ".join(dict.fromkeys(one.test for one in differences if one.test))
    absent = [name for name in over if name not in {one.column for one in differences}]
    notes = [
        f"Points: {arm} minus {against}, paired item by item.",
        _reading(differences[0].reading),
        f"The interval is a bootstrap over items (seed {differences[0].seed}): it says nothing about other training seeds.",
        f"Tests: {tests}, two-sided; Holm's correction is over all of them in this comparison. Bold: below {SURE} after it.",
        *([f"No {', '.join(absent)}: a benchmark of it is graded only in part."] if absent else []),
        *_releases(differences),
        *remarks,
    ]
    groups = (("", 1), ("Pass@1 (%)", 2), ("Points", 2), (tests, 2))
    columns = ("items", against, arm, "difference", f"{100 * confidence:g} % interval", "p", "p (Holm)")
    return Layout(f"{arm} against {against}", groups, columns, tuple(blocks), tuple(notes))


def _reading(name: str) -> str:
    if name == HEADLINE:
        return "Completions are read as each benchmark's score reads them (headline)."
    return f"Completions are read as '{name}'; a benchmark without this reading counts as its score does."


def _releases(differences: Sequence[Difference]) -> list[str]:
    """Of benchmarks that have several, which one this is."""
    named = {BENCHMARKS[one.column]: one.of for one in differences if one.p is not None}
    found = {which.title: (release_of(which, items), other_size(which.name, items)) for which, items in named.items()}
    return [f"{title} is {release}{': it is in no aggregate' if other else ''}." for title, (release, other) in found.items() if release]


def _line(one: Difference, over: Over) -> Line:
    label = heading(one.column, over[one.column]) if one.column in over else BENCHMARKS[one.column].title
    ends = ABSENT if one.low is None else f"[{one.low:+.1f}, {one.high:+.1f}]"
    sure = one.adjusted is not None and one.adjusted < SURE
    items = str(one.items) if one.items == one.of else f"{one.items}/{one.of}"
    texts = (items, f"{one.other:.1f}", f"{one.value:.1f}", f"{one.difference:+.1f}", ends, _p(one.p), _p(one.adjusted))
    return Line(label, tuple(Entry(text, bold=sure and index == 3) for index, text in enumerate(texts)))


def _p(value: float | None) -> str:
    if value is None:
        return ABSENT
    return "<0.001" if value < 0.001 else f"{value:.3f}"
