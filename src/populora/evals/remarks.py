"""What a user should know of an endpoint's answers beside their scores: items that it refused (``refused.json``), and empty answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from populora.core.files import json_bytes, read_json, write_file
from populora.evals.completions import completions_file, read_completed
from populora.evals.generating import Coverage
from populora.evals.records import Completion

REFUSED = "refused.json"
_NAMED = 10
"""So many refused items are named."""


def note_refused(out: Path, benchmark: str, items: Mapping[str, str]) -> None:
    """Write down what was refused of a benchmark, by item with the endpoint's message, instead of what was before."""
    known = _refused(out)
    if items or benchmark in known:
        others = {name: refused for name, refused in known.items() if name != benchmark}
        write_file(out / REFUSED, json_bytes({**others, **({benchmark: dict(items)} if items else {})}))


def remarks(out: Path, coverage: Coverage) -> Iterator[str]:
    """What a user should know of the answers in ``out``: items that were refused, and how many answers are empty and why."""
    refused = _refused(out)
    for one in coverage.asked:
        name = one.benchmark.name
        if items := refused.get(name, {}):
            some = ", ".join(map(repr, list(items)[:_NAMED])) + (", …" if len(items) > _NAMED else "")
            why = next(iter(items.values()))
            yield f"the endpoint refused {len(items)} items of {name}, which have no completion: {some} ({why}); see {REFUSED}"
        given = [completion for source in coverage.sources for completion in read_completed(completions_file(out, name, source.name))]
        empty = Counter(_emptiness(completion) for completion in given if not completion.completion.strip())
        if empty:
            why = ", ".join(f"{count} {reason}" for reason, count in empty.most_common())
            yield f"{empty.total()} of {len(given)} answers to {name} are empty and count as wrong: {why}"


def _refused(out: Path) -> dict[str, dict[str, str]]:
    return read_json(out / REFUSED) if (out / REFUSED).exists() else {}


def _emptiness(completion: Completion) -> str:
    """Why an answer has no text, in words."""
    thought = "with reasoning only" if completion.reasoning else "with nothing at all"
    limit = ", cut at the limit of tokens (--max-tokens)" if completion.finish_reason == "length" else ""
    return thought + limit
