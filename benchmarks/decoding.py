"""Compare sampling from the tiny base with an earlier commit's, at 8, 64 and 512 rows on one thread.

    python -m benchmarks.decoding [--old COMMIT] [--rounds 7]        writes decoding.json; about four minutes

It needs the git repository. Each source samples in a process of its own (`benchmarks.speed.decoding_worker`), and the two take turns: four
responses of 96 tokens to each prompt, under eight adapters. Times are CPU seconds, of prompts and responses together. A response may differ
where the sources round differently; the share of equal ones is given.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO, cast

from benchmarks.measuring import ROOT, bar, machine, noise, options, ratio, spread, take_turns, write_results
from benchmarks.old_and_new import OLD, commits, earlier_source

ROWS = (8, 64, 512)
FASTER = 2.5
Measure = Callable[[object], dict[str, Any]]
"""Does a case, and returns what the worker measured."""
Measured = tuple[dict[str, list[Any]], dict[str, Any]]
"""What the workers measured by ``old CASE`` and ``new CASE``, and the noise."""
WORKER = ROOT / "benchmarks" / "speed" / "decoding_worker.py"


def main() -> None:
    parser = options(__doc__, Path(__file__).with_suffix(".json"), rounds=7)
    parser.add_argument("--old", metavar="COMMIT", default=OLD)
    args = parser.parse_args()
    about = {"machine": machine("populora", "torch"), "rounds": args.rounds, "commits": commits(args.old)}
    measured, disturbance = measure_sources(WORKER, args.old, ROWS, min(ROWS), args.rounds)
    results = {f"{rows} rows": compare(measured[f"old {rows}"], measured[f"new {rows}"]) for rows in ROWS}
    faster = FASTER if args.old == OLD else 1.0
    bars = {name: bar(faster, result["old / new"]["median"], at_least=True) for name, result in results.items()}
    write_results(args.out, {**about, **results, "bars": bars, "noise": disturbance})


def measure_sources(script: Path, old: str, cases: Sequence[object], first: object, rounds: int) -> Measured:
    """Let a worker of an earlier commit and one of today's code do the cases in turns, after ``first``, which loads what is loaded once."""
    with earlier_source(old) as source, ExitStack() as stack:
        workers = {age: stack.enter_context(worker(script, path)) for age, path in (("old", source), ("new", ROOT / "src"))}
        for measure in workers.values():
            measure(first)
        turns = {f"{age} {case}": lambda measure=measure, case=case: measure(case) for case in cases for age, measure in workers.items()}
        return noise(lambda: take_turns(turns, rounds))


@contextmanager
def worker(script: Path, source: Path) -> Iterator[Measure]:
    """Start a worker with the package in ``source``; it ends with the block."""
    command = [sys.executable, str(script)]
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        requests, replies = cast(tuple[TextIO, TextIO], (process.stdin, process.stdout))

        def measure(case: object) -> dict[str, Any]:
            requests.write(f"{case}\n")
            requests.flush()
            return json.loads(replies.readline())

        yield measure
        requests.close()


def compare(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> dict[str, Any]:
    """Return milliseconds for a decoding step of all rows, their ratio by round, and the share of responses with equal tokens."""
    steps = old[0]["tokens"] / len(old[0]["digests"])
    times = {age: [1000 * each["seconds"] / steps for each in rounds] for age, rounds in (("old", old), ("new", new))}
    equal = sum(a == b for a, b in zip(old[0]["digests"], new[0]["digests"], strict=True)) / len(old[0]["digests"])
    by_age = {f"{age}, ms a step": spread(values) for age, values in times.items()}
    return {**by_age, "old / new": ratio(times, "old", "new"), "equal responses": round(equal, 4)}


if __name__ == "__main__":
    main()
