"""Time grading canonical solutions by `populora evaluate grade` and by evalplus's own command, with the same limits.

    python -m benchmarks.evaluation.evalplus_time --data FOLDER --evalplus-python PYTHON [--parallel 2] [--rounds 3]
                                  adds a part to evalplus_time.json: HumanEval+, seven minutes

PYTHON is an interpreter with evalplus 0.3.1 and all that its command line needs. Whole processes, in turns: ours, evalplus without its
cache of expected outputs (``first``), and evalplus with it (``again``). Ours computes the expected outputs each time. ``verdicts`` are the
seconds to the result file, and the bar is on those: evalplus's process then waits for a thread that sleeps up to twenty seconds.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.evaluation.grader import HERE, LIBRARIES, Parts, canonical, grade_command, items_of, keep, spent, write_lines
from benchmarks.measuring import bar, columns, machine, options, ratio, take_turns

from populora.evals.eval_records import Item

OURS, FIRST, AGAIN = "populora", "evalplus, first", "evalplus, again"
BENCHMARK = "humaneval_plus"
LIMITS = ("--min_time_limit", "10", "--gt_time_limit_factor", "8")
"""AZR's, and ours."""
BAR = 1.3

Way = Callable[[], dict[str, float]]


def main() -> None:
    parser = options(__doc__, HERE / "evalplus_time.json", rounds=3)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--evalplus-python", required=True)
    parser.add_argument("--parallel", type=int, default=2, help="items that are graded at the same time")
    args = parser.parse_args()
    about = machine(*LIBRARIES)
    path, items = items_of(BENCHMARK, args.data)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        ways = {OURS: our_way(path, items, args.parallel, folder)}
        ways |= their_ways(path, items, args.parallel, args.evalplus_python, folder)
        rounds = take_turns(ways, args.rounds)
        part = {"evalplus_python": versions_of(args.evalplus_python), "items": len(items), **verdicts(folder), **figures(rounds)}
    keep(args.out, about, {f"{BENCHMARK}, {args.parallel} at a time": part}, bars)


def our_way(path: Path, items: Sequence[Item], workers: int, folder: Path) -> Way:
    out = folder / "ours.jsonl"
    command = grade_command(BENCHMARK, {item.id: canonical(item) for item in items}, path.resolve(), out, workers)

    def run() -> dict[str, float]:
        for file in (out, out.with_suffix(".json")):
            file.unlink(missing_ok=True)  # else it would go on where it stopped
        return spent(command, folder / "ours.log")

    return run


def their_ways(path: Path, items: Sequence[Item], workers: int, python: str, folder: Path) -> dict[str, Way]:
    """Return evalplus without and with its cache of an earlier call."""
    rows = [{"task_id": item.id, "solution": canonical(item)} for item in items]
    samples, cache, result = write_lines(folder / "theirs.jsonl", rows), folder / "cache", folder / "theirs_eval_results.json"
    environment = {**os.environ, "HUMANEVAL_OVERRIDE_PATH": str(path.resolve()), "XDG_CACHE_HOME": str(cache)}
    command = [python, "-m", "evalplus.evaluate", "--dataset", "humaneval", "--samples", str(samples), "--parallel", str(workers), *LIMITS]

    def run(forget: bool) -> dict[str, float]:
        result.unlink(missing_ok=True)
        if forget:
            shutil.rmtree(cache, ignore_errors=True)
        return spent(command, folder / "theirs.log", result, environment)

    return {FIRST: lambda: run(forget=True), AGAIN: lambda: run(forget=False)}


def figures(rounds: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Return the seconds of each way, and ours over theirs within a round."""
    times = {column: {name: [row[column] for row in rows] for name, rows in rounds.items()} for column in ("process", "verdicts", "cpu")}
    ratios = {name: {column: ratio(seconds, OURS, name) for column, seconds in times.items()} for name in (FIRST, AGAIN)}
    return {"rounds": len(rounds[OURS]), "seconds": {name: columns(rows) for name, rows in rounds.items()}, "ratios": ratios}


def bars(parts: Parts) -> dict[str, dict[str, Any]]:
    """Judge the time to all verdicts over evalplus's."""
    return {
        f"{name}: populora over {way}": bar(BAR, part["ratios"][way]["verdicts"]["median"])
        for name, part in parts.items()
        for way in (FIRST, AGAIN)
    }


def verdicts(folder: Path) -> dict[str, Any]:
    """Count the right ones of the last round, and list the items on which the two differ."""
    lines = [json.loads(line) for line in (folder / "ours.jsonl").read_text().splitlines()]
    ours = {line["item_id"]: line["correct"] for line in lines}
    results = json.loads((folder / "theirs_eval_results.json").read_text())["eval"]
    theirs = {name: row["base_status"] == row["plus_status"] == "pass" for name, (row,) in results.items()}
    right = {"populora": sum(ours.values()), "evalplus": sum(theirs.values())}
    return {"right": right, "other_verdicts": [name for name, correct in ours.items() if theirs[name] != correct]}


def versions_of(python: str) -> dict[str, str]:
    """Return versions in the other interpreter."""
    script = "import platform, importlib.metadata as m; print(platform.python_version(), m.version('evalplus'), m.version('numpy'))"
    printed = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    return dict(zip(("python", "evalplus", "numpy"), printed, strict=True))


if __name__ == "__main__":
    main()
