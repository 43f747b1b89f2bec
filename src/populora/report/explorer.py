"""What the page's explorer holds: a sample of problems with their answers, drawn evenly over steps, authors and types.

A run of 200 steps has hundreds of thousands of answers, and a page with all of them would not open. The sample is the beginning of one
fixed order, as far as its texts fit into ``budget`` characters: rounds over all steps (the middle one first, then the quarters, …), each
taking the next valid problem of every author and type, and the next rejected proposal of every author. Of a problem's answers equal ones
are one entry with their number, and at most `ANSWERS` entries stay, different verdicts first. `populora show` reads everything else.
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from populora.report.loading import RunData
from populora.runs.style import printable

ANSWERS = 4
LONGEST = 40_000
"""Characters of one text, a whole answer of the paper's length: of a longer one the beginning, with how much more there is."""
_PROPOSAL = ("step", "author", "task", "problem_id", "valid", "rejection", "rho", "reward", "ast_depth", "cyclomatic", "loc", "variables")
_PROBLEM = ("problem_id", "program", "message", "shown", "hidden")
_ANSWER = ("problem_id", "student", "text", "correct", "void", "reason", "reward", "trained")
_TYPICAL = 48
"""Entries by whose size the number of all is guessed, before they are read and counted."""
Entry = dict[str, Any]
Place = tuple[int, int]
"""A proposal: its step, and its row in the step's table."""


def explored(run: RunData, budget: int) -> dict[str, Any]:
    """The sample of a run as plain values: ``entries``, and how many proposals, valid ones and answers there are in all."""
    order, valid = _order(run)
    first = _entries(run, order[:_TYPICAL])
    typical = max(1, sum(map(_size, first)) // max(1, len(first)))
    entries = _entries(run, order[: max(_TYPICAL, budget // typical)])
    sizes, kept = 0, []
    for entry in entries:
        sizes += _size(entry)
        if sizes > budget:
            break
        kept.append(entry)
    answers = run.table("attempts", ("step",)).num_rows
    return {
        "run": run.name,
        "folder": shlex.quote(str(run.folder)),  # the page shows commands with it
        "entries": sorted(kept, key=lambda entry: (entry["step"], entry["author"], entry["id"])),
        "proposals": len(order),
        "valid": valid,
        "answers": answers,
    }


def _order(run: RunData) -> tuple[list[Place], int]:
    """All proposals in the order of the sample, and how many are valid."""
    table = run.table("proposals", ("step", "author", "task", "valid"))
    columns = [table[name].to_pylist() for name in table.column_names]
    ranks = {step: rank for rank, step in enumerate(spread(run.recorded))}
    seen: Counter[tuple[Any, ...]] = Counter()
    rows: Counter[int] = Counter()
    keyed = []
    for step, author, task, valid in zip(*columns, strict=True):
        group = (step, author, task if valid else "rejected")
        keyed.append(((seen[group], ranks[step], author, group[2]), (step, rows[step])))
        seen[group] += 1
        rows[step] += 1
    return [place for _, place in sorted(keyed)], sum(columns[3])


def spread(steps: Sequence[int]) -> list[int]:
    """The middle one first, then the middles of the halves, and so on, so that every beginning is spread over all."""
    ordered, level = list[int](), [(0, len(steps))] if steps else []
    while level:
        ordered += [steps[(low + high) // 2] for low, high in level]
        halves = [half for low, high in level for half in ((low, (low + high) // 2), ((low + high) // 2 + 1, high))]
        level = [(low, high) for low, high in halves if low < high]
    return ordered


def _entries(run: RunData, places: Sequence[Place]) -> list[Entry]:
    """The entries of these places, in their order; a step whose files cannot be read has none."""
    rows: dict[int, list[int]] = defaultdict(list)
    for step, row in places:
        rows[step].append(row)
    found = {place: entry for step, own in rows.items() for place, entry in _of_step(run, step, own).items()}
    return [found[place] for place in places if place in found]


def _of_step(run: RunData, step: int, rows: Sequence[int]) -> dict[Place, Entry]:
    table = run.table("proposals", (*_PROPOSAL, "text"), [step])
    proposals = table.take(rows).to_pylist() if len(table) > max(rows) else []
    ids = [row["problem_id"] for row in proposals if row["valid"]]
    contents, answers = (run.table(name, columns, [step]) for name, columns in (("problems", _PROBLEM), ("attempts", _ANSWER)))
    problems = {row["problem_id"]: row for row in _named(contents, ids)}
    attempts: dict[str, list[Entry]] = defaultdict(list)
    for row in _named(answers, ids):
        attempts[row["problem_id"]].append(row)
    return {
        (step, row): _entry(step, row, proposal, problems.get(proposal["problem_id"]), attempts[proposal["problem_id"]])
        for row, proposal in zip(rows, proposals, strict=True)
    }


def _named(table: pa.Table, ids: Sequence[str]) -> list[Entry]:
    return table.filter(pc.field("problem_id").isin(pa.array(ids, pa.string()))).to_pylist()


def _entry(step: int, row: int, proposal: Entry, problem: Entry | None, attempts: list[Entry]) -> Entry:
    entry = {
        "id": proposal["problem_id"] or f"{step}-rejected-{row}",
        "step": step,
        "author": proposal["author"],
        "task": proposal["task"],
        "verdict": _verdict(proposal),
        "reward": proposal["reward"],
        "text": _told(proposal["text"].strip()),
    }
    if not problem:
        return entry
    texts = {name: _told(problem[name]) for name in ("program", "message")}
    examples = {side: [[_told(one["inputs"]), _told(one["output"])] for one in problem[side]] for side in ("shown", "hidden")}
    measures = {name: proposal[name] for name in ("rho", "ast_depth", "cyclomatic", "loc", "variables")}
    return {**entry, **texts, **examples, **measures, "answers": _answers(attempts), "of": len(attempts)}


def _verdict(proposal: Entry) -> str:
    if not proposal["valid"]:
        return f"rejected: {_told(proposal['rejection'])}"
    if proposal["rho"] is None:
        return "void"
    return {0.0: "solved never", 1.0: "solved always"}.get(proposal["rho"], "solved sometimes")


def _answers(attempts: Sequence[Entry]) -> list[Entry]:
    """Equal answers once, those with a verdict that no other has first, then by number."""
    counts = Counter(tuple(attempt[name] for name in _ANSWER[1:]) for attempt in attempts)
    verdicts: set[tuple[Any, ...]] = set()
    ranked = []
    for place, (answer, times) in enumerate(counts.most_common()):
        verdict = answer[2:5]
        ranked.append((verdict in verdicts, place, answer, times))
        verdicts.add(verdict)
    kept = [(answer, times) for *_, answer, times in sorted(ranked)[:ANSWERS]]
    named = [(dict(zip(_ANSWER[1:], answer, strict=True)), times) for answer, times in kept]
    return [{**one, "text": _told(one["text"].strip()), "reason": _told(one["reason"]), "times": times} for one, times in named]


def _told(text: str) -> str:
    """What a model wrote as it is shown: nothing unprintable, and no more than a page can hold."""
    more = len(text) - LONGEST
    return printable(text[:LONGEST]) + (f"\n… and {more:,} more characters, which `populora show` reads" if more > 0 else "")


def _size(entry: Entry) -> int:
    """Characters of the texts of an entry."""
    examples = sum(len(text) for side in ("shown", "hidden") for pair in entry.get(side, ()) for text in pair)
    answers = sum(len(answer["text"]) + 80 for answer in entry.get("answers", ()))
    return 200 + len(entry["text"]) + len(entry.get("program", "")) + len(entry.get("message", "")) + examples + answers
