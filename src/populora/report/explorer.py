"""Sample problems and answers for the page's explorer, spread evenly over steps, authors and task types.

The sample takes proposals in a fixed order until their texts fill ``budget`` characters. The order is rounds over all steps (the middle one
first, then the quarters, …), each with the next valid problem of every author and type and the next rejected proposal of every author.
Equal answers to a problem are one entry with their count. At most `MAX_ANSWERS` of these are kept, different verdicts first.
"""

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from populora.core.types import Kind, TaskType
from populora.domains.registry import domain_of
from populora.report.run_data import RunData
from populora.runs.style import printable

MAX_ANSWERS = 4
MAX_TEXT = 40_000  # characters of a text: a whole answer of the paper's length
ASKED = {Kind.INPUT: "input", Kind.OUTPUT: "output", Kind.PROGRAM: "program"}
_PROPOSAL = ("step", "author", "task", "problem_id", "valid", "rejection", "rho", "reward")
_PROBLEM = ("problem_id", "program", "message", "shown", "hidden")
_ANSWER = ("student", "text", "correct", "void", "reason", "reward", "trained")
_TYPICAL = 48  # entries whose mean size predicts how many fit
Item = dict[str, Any]


def sample_problems(run: RunData, budget: int) -> dict[str, Any]:
    """Return the sample as plain values: ``entries``, and the numbers of all proposals, valid ones and answers to their problems.

    ``tasks`` holds what is sought in each task type, how its programs are called, and the labels of their complexity metrics.
    """
    order, valid = _order(run)
    first = _entries(run, order[:_TYPICAL])
    typical = max(1, len(json.dumps(first, ensure_ascii=False)) // max(1, len(first)))
    size, kept = 0, list[Item]()
    for entry in _entries(run, order[: max(_TYPICAL, budget // typical)]):
        size += len(json.dumps(entry, ensure_ascii=False))
        if size > budget:
            break
        kept.append(entry)
    return {
        "run": run.name,
        "folder": shlex.quote(str(run.folder)),  # for commands that the page prints
        "tasks": {task: _describe(task) for task in run.config.task_types},
        "entries": sorted(kept, key=lambda entry: (entry["step"], entry["author"], entry["id"])),
        "proposals": len(order),
        "valid": valid,
        "answers": run.table("attempts", ("filled",)).filter(~pc.field("filled")).num_rows,  # the others are to problems of other steps
    }


def _describe(task: TaskType) -> Item:
    domain = domain_of(task)
    return {"asks": ASKED[task.kind], "call": domain.call, "measures": {metric.name: metric.label for metric in domain.metrics}}


def _order(run: RunData) -> tuple[list[tuple[int, int]], int]:
    """Return all proposals, as (step, row in the step's table), in the order of the sample, and the number of valid ones."""
    table = run.table("proposals", ("step", "author", "task", "valid"))
    columns = [table[name].to_pylist() for name in table.column_names]
    ranks = {step: rank for rank, step in enumerate(bisected(run.recorded))}
    seen: Counter[tuple[Any, ...]] = Counter()
    rows: Counter[int] = Counter()
    keyed: list[tuple[tuple[Any, ...], tuple[int, int]]] = []
    for step, author, task, valid in zip(*columns, strict=True):
        group = (step, author, task if valid else "rejected")
        keyed.append(((seen[group], ranks[step], author, group[2]), (step, rows[step])))
        seen[group] += 1
        rows[step] += 1
    return [proposal for _, proposal in sorted(keyed)], sum(columns[3])


def bisected(steps: Sequence[int]) -> list[int]:
    """Order steps so that every beginning is spread over all of them: the middle one, then the middles of what is left on each side."""
    order: list[int] = []
    ranges = [steps]
    for part in ranges:  # it grows
        if part:
            middle = len(part) // 2
            order.append(part[middle])
            ranges += [part[:middle], part[middle + 1 :]]
    return order


def _entries(run: RunData, proposals: Sequence[tuple[int, int]]) -> list[Item]:
    """Read proposals with their problems and answers, step by step."""
    rows: dict[int, list[int]] = defaultdict(list)
    for step, row in proposals:
        rows[step].append(row)
    entries = {key: entry for step in rows for key, entry in _step_entries(run, step, rows[step]).items()}
    return [entries[key] for key in proposals if key in entries]


def _step_entries(run: RunData, step: int, rows: list[int]) -> dict[tuple[int, int], Item]:
    measures = dict.fromkeys(name for task in run.config.task_types for name in domain_of(task).metric_names)
    table = run.table("proposals", (*_PROPOSAL, *measures, "text"), [step])
    if len(table) <= max(rows):
        return {}
    proposals = table.take(rows).to_pylist()
    named = pc.field("problem_id").isin(pa.array([row["problem_id"] for row in proposals if row["valid"]], pa.string()))
    problems = {row["problem_id"]: row for row in run.table("problems", _PROBLEM, [step]).filter(named).to_pylist()}
    answers: dict[str, list[Item]] = defaultdict(list)
    for row in run.table("attempts", ("problem_id", *_ANSWER), [step]).filter(named).to_pylist():
        answers[row["problem_id"]].append(row)
    return {
        (step, row): _entry(step, row, proposal, problems.get(proposal["problem_id"]), answers[proposal["problem_id"]])
        for row, proposal in zip(rows, proposals, strict=True)
    }


def _entry(step: int, row: int, proposal: Item, problem: Item | None, answers: list[Item]) -> Item:
    entry = {
        "id": proposal["problem_id"] or f"{step}-rejected-{row}",
        **{name: proposal[name] for name in ("step", "author", "task", "reward")},
        "verdict": _verdict(proposal),
        "text": _cut(proposal["text"].strip()),
    }
    if not problem:
        return entry
    texts = {name: _cut(problem[name]) for name in ("program", "message")}
    examples = {side: [[_cut(example["inputs"]), _cut(example["output"])] for example in problem[side]] for side in ("shown", "hidden")}
    measures = {name: proposal[name] for name in ("rho", *domain_of(TaskType(proposal["task"])).metric_names)}
    return {**entry, **texts, **examples, **measures, "answers": _distinct_answers(answers), "of": len(answers)}


def _verdict(proposal: Item) -> str:
    if not proposal["valid"]:
        return f"rejected: {_cut(proposal['rejection'])}"
    if proposal["rho"] is None:
        return "void"
    return {0.0: "solved never", 1.0: "solved always"}.get(proposal["rho"], "solved sometimes")


def _distinct_answers(answers: Sequence[Item]) -> list[Item]:
    """Count equal answers. The most frequent one of each verdict comes first, then the others by frequency."""
    counts = Counter(tuple(answer[name] for name in _ANSWER) for answer in answers)
    distinct = [{**dict(zip(_ANSWER, values, strict=True)), "times": times} for values, times in counts.most_common()]
    verdicts: set[tuple[Any, ...]] = set()
    first, others = list[Item](), list[Item]()
    for answer in distinct:
        verdict = (answer["correct"], answer["void"], answer["reason"])
        (others if verdict in verdicts else first).append(answer)
        verdicts.add(verdict)
    kept = [*first, *others][:MAX_ANSWERS]
    return [{**answer, "text": _cut(answer["text"].strip()), "reason": _cut(answer["reason"])} for answer in kept]


def _cut(text: str) -> str:
    """Escape unprintable characters, and cut a text that is too long for the page."""
    more = len(text) - MAX_TEXT
    return printable(text[:MAX_TEXT]) + (f"\n… and {more:,} more characters, which `populora show` prints" if more > 0 else "")
