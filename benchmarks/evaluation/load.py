"""Verdicts on a busy machine: the same completions graded alone, and while twice as many processes as there are cores keep them busy.

    python benchmarks/evaluation/load.py --data FOLDER [--only CASE …] [--repeats 2]
                                           writes load.json, a part a case; a quarter of an hour in all on two cores

Each grading is a whole `populora evaluate grade` from nothing. Compared are the verdict files, line by line and byte by byte: a line says
also which test failed and whether the item failed at first and was right when it was graded alone (``overturned``).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grader import Parts, at_most, canonical, grade_command, items_of, keep, machine, nothing, spent

from populora.evals.records import Item

HERE = Path(__file__).parent
LOOPS = (20, 80, 140)
"""Places of the items that get an endless loop."""
BUSY = "while True: pass"
Completions = dict[str, str]


def solutions(items: Sequence[Item]) -> Completions:
    return {item.id: canonical(item) for item in items}


def wrong_ones_too(items: Sequence[Item]) -> Completions:
    """Every second one returns None, and some never end."""
    texts = {item.id: nothing(item) if place % 2 else canonical(item) for place, item in enumerate(items)}
    endless = {items[place].id: f"def {items[place].fields['entry_point']}(*args):\n    while True:\n        pass\n" for place in LOOPS}
    return texts | endless


def neighbours_too(answer: Callable[[Item], str]) -> Callable[[Sequence[Item]], Completions]:
    """Every second item gets the answer of the one after it."""
    return lambda items: {item.id: answer(items[(place + place % 2) % len(items)]) for place, item in enumerate(items)}


CASES: dict[str, tuple[str, Callable[[Sequence[Item]], Completions]]] = {
    "HumanEval+, canonical solutions": ("humaneval_plus", solutions),
    "HumanEval+, every second one wrong, some endless": ("humaneval_plus", wrong_ones_too),
    "CRUXEval-I, every second one a neighbour's": ("cruxeval_input", neighbours_too(lambda item: f"f({item.fields['input']})")),
    "CRUXEval-O, every second one a neighbour's": ("cruxeval_output", neighbours_too(lambda item: item.fields["output"])),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES), metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--repeats", type=int, default=2, help="gradings on the busy machine")
    parser.add_argument("--out", type=Path, default=HERE / "load.json")
    chosen = parser.parse_args()
    for name in chosen.only:
        benchmark, complete = CASES[name]
        path, items = items_of(benchmark, chosen.data)
        part = {"machine": machine(), **measure(benchmark, complete(items), path, chosen.repeats)}
        found = keep(chosen.out, {name: part}, bars)
        print(name, json.dumps(part["busy"], indent=1), flush=True)
    print(json.dumps(found["bars"], indent=1))


def measure(benchmark: str, texts: Completions, path: Path, repeats: int, options: Sequence[str] = ()) -> dict[str, Any]:
    """Grade alone and then on a busy machine."""
    processes = 2 * (os.cpu_count() or 1)
    with tempfile.TemporaryDirectory() as folder:

        def graded(name: str) -> tuple[list[bytes], dict[str, float]]:
            out = Path(folder) / f"{name}.jsonl"
            command = [*grade_command(benchmark, texts, path.resolve(), out, 2), *options]
            seconds = spent(command, out.with_suffix(".log"))
            return out.read_bytes().splitlines(), seconds

        alone, seconds = graded("alone")
        found = {"items": len(alone), **counts(alone), "alone": seconds, "busy_processes": processes, "busy": []}
        for number in range(repeats):
            with busy(processes):
                again, seconds = graded(f"busy_{number}")
            found["busy"].append({**seconds, **counts(again), **differences(alone, again)})
    return found


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that do nothing, as fast as they can; each a session of its own, as Linux gives sessions equal shares."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for one in processes:
            one.kill()
            one.wait()


def counts(lines: Sequence[bytes]) -> dict[str, Any]:
    """How many are right, and which were so only when they were graded alone."""
    grades = [json.loads(line) for line in lines]
    overturned = [one["item_id"] for one in grades if one["retry"] == "passed"]
    return {"right": sum(one["correct"] for one in grades), "overturned": overturned}


def differences(alone: Sequence[bytes], again: Sequence[bytes]) -> dict[str, Any]:
    """The items whose verdicts differ, and those of which anything in the line does."""
    pairs = [(json.loads(one), json.loads(other)) for one, other in zip(alone, again, strict=True) if one != other]
    verdicts = [one["item_id"] for one, other in pairs if (one["item_id"], one["correct"]) != (other["item_id"], other["correct"])]
    return {"other_verdicts": verdicts, "other_lines": [one["item_id"] for one, _ in pairs]}


def bars(parts: Parts) -> dict[str, dict[str, Any]]:
    """Over all cases and gradings on a busy machine."""
    runs: list[Mapping[str, Any]] = [run for part in parts.values() for run in part["busy"]]
    return {
        name: {**at_most(0, sum(len(run[column]) for run in runs)), "of": sum(len(part["busy"]) * part["items"] for part in parts.values())}
        for name, column in {"verdicts that differ": "other_verdicts", "lines that differ in any byte": "other_lines"}.items()
    }


if __name__ == "__main__":
    main()
