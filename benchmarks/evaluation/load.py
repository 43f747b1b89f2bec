"""Compare verdicts on a busy machine with those on a quiet one: the same completions, with twice as many busy processes as cores.

    python -m benchmarks.evaluation.load --data FOLDER [--only CASE …] [--repeats 2]
                                           writes load.json, a part a case; a quarter of an hour in all on two cores

Each grading is a whole `populora evaluate grade`. The verdict files are compared line by line; a line also says which test failed, and
whether the item failed at first and passed when it was graded alone (``overturned``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.evaluation.grader import HERE, Parts, canonical, grade_command, items_of, keep, nothing, spent
from benchmarks.measuring import bar, options

from populora.evals.records import Item

LOOPS = (20, 80, 140)
"""Indices of the items that get an endless loop."""
BUSY = "while True: pass"
Completions = dict[str, str]


def solutions(items: Sequence[Item]) -> Completions:
    return {item.id: canonical(item) for item in items}


def half_wrong(items: Sequence[Item]) -> Completions:
    """Return solutions of which every second one returns None, and some never end."""
    texts = {item.id: nothing(item) if index % 2 else canonical(item) for index, item in enumerate(items)}
    endless = {items[index].id: f"def {items[index].fields['entry_point']}(*args):\n    while True:\n        pass\n" for index in LOOPS}
    return texts | endless


def half_neighbours(answer: Callable[[Item], str]) -> Callable[[Sequence[Item]], Completions]:
    """Give every second item the answer of the next one."""
    return lambda items: {item.id: answer(items[(index + index % 2) % len(items)]) for index, item in enumerate(items)}


CASES: dict[str, tuple[str, Callable[[Sequence[Item]], Completions]]] = {
    "HumanEval+, canonical solutions": ("humaneval_plus", solutions),
    "HumanEval+, every second one wrong, some endless": ("humaneval_plus", half_wrong),
    "CRUXEval-I, every second one a neighbour's": ("cruxeval_input", half_neighbours(lambda item: f"f({item.fields['input']})")),
    "CRUXEval-O, every second one a neighbour's": ("cruxeval_output", half_neighbours(lambda item: item.fields["output"])),
}


def main() -> None:
    parser = options(__doc__, HERE / "load.json")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES), metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--repeats", type=int, default=2, help="gradings on the busy machine")
    args = parser.parse_args()
    for name in args.only:
        benchmark, complete = CASES[name]
        path, items = items_of(benchmark, args.data)
        keep(args.out, {name: measure(benchmark, complete(items), path, args.repeats)}, bars)


def measure(benchmark: str, texts: Completions, path: Path, repeats: int, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Grade on a quiet and then on a busy machine."""
    processes = 2 * (os.cpu_count() or 1)
    with tempfile.TemporaryDirectory() as folder:

        def graded(name: str) -> tuple[list[bytes], dict[str, float]]:
            out = Path(folder) / f"{name}.jsonl"
            seconds = spent([*grade_command(benchmark, texts, path.resolve(), out, 2), *settings], out.with_suffix(".log"))
            return out.read_bytes().splitlines(), seconds

        quiet, seconds = graded("alone")
        results = {"items": len(quiet), **counts(quiet), "alone": seconds, "busy_processes": processes, "busy": []}
        for number in range(repeats):
            with busy(processes):
                again, seconds = graded(f"busy_{number}")
            results["busy"].append({**seconds, **counts(again), **differences(quiet, again)})
    return results


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep ``count`` processes busy, each in its own session: Linux gives sessions equal shares."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def counts(lines: Sequence[bytes]) -> dict[str, Any]:
    """Count the right ones, and list those that were right only when graded alone."""
    grades = [json.loads(line) for line in lines]
    overturned = [grade["item_id"] for grade in grades if grade["retry"] == "passed"]
    return {"right": sum(grade["correct"] for grade in grades), "overturned": overturned}


def differences(quiet: Sequence[bytes], again: Sequence[bytes]) -> dict[str, Any]:
    """List the items whose verdicts differ, and those whose lines differ in any byte."""
    pairs = [(json.loads(line), json.loads(other)) for line, other in zip(quiet, again, strict=True) if line != other]
    verdicts = [line["item_id"] for line, other in pairs if (line["item_id"], line["correct"]) != (other["item_id"], other["correct"])]
    return {"other_verdicts": verdicts, "other_lines": [line["item_id"] for line, _ in pairs]}


def bars(parts: Parts) -> dict[str, dict[str, Any]]:
    """Judge all cases and gradings on a busy machine."""
    runs: list[Mapping[str, Any]] = [run for part in parts.values() for run in part["busy"]]
    total = sum(len(part["busy"]) * part["items"] for part in parts.values())
    return {
        name: {**bar(0, sum(len(run[column]) for run in runs)), "of": total}
        for name, column in {"verdicts that differ": "other_verdicts", "lines that differ in any byte": "other_lines"}.items()
    }


if __name__ == "__main__":
    main()
