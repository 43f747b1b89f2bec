"""Grading canonical solutions by `populora evaluate grade`, beside evalplus's own command on the same machine with the same limits.

    python benchmarks/evaluation/evalplus_time.py --data FOLDER --evalplus-python PYTHON [--parallel 2] [--rounds 3]
                                  puts one part into evalplus_time.json: HumanEval+ seven minutes, MBPP+ (--benchmark mbpp_plus) five

FOLDER has the benchmarks' files; PYTHON is an interpreter with evalplus 0.3.1 and all that its command line needs. Whole processes, in
turns: ours, evalplus without its cache of expected outputs (``first``), and evalplus with it (``again``). Ours computes the expected
outputs anew each time. ``process`` are wall seconds to the end of a process. evalplus has its verdicts earlier: its process then waits
for a thread that sleeps for twenty seconds at a time. ``verdicts`` are the seconds to its result file, and the bar is on those. Other
work on the machine disturbs wall time: CPU seconds, and the share of all cores' time that others had, stand beside it. Ratios are taken
within a round.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grader import Parts, at_most, canonical, columns, grade_command, items_of, keep, machine, spent, spread, write_lines

from populora.evals.records import Item

HERE = Path(__file__).parent
OURS, FIRST, AGAIN = "populora", "evalplus, first", "evalplus, again"
DATASETS = {"humaneval_plus": ("humaneval", "HUMANEVAL_OVERRIDE_PATH"), "mbpp_plus": ("mbpp", "MBPP_OVERRIDE_PATH")}
LIMITS = ("--min_time_limit", "10", "--gt_time_limit_factor", "8")
"""AZR's, and ours."""
BAR = 1.3

Way = Callable[[], dict[str, float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--evalplus-python", required=True)
    parser.add_argument("--benchmark", default="humaneval_plus", choices=list(DATASETS))
    parser.add_argument("--parallel", type=int, default=2, help="items that are graded at the same time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "evalplus_time.json")
    chosen = parser.parse_args()
    path, items = items_of(chosen.benchmark, chosen.data)
    about = {"machine": machine(), "evalplus_python": versions_of(chosen.evalplus_python)}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        ours = our_way(chosen.benchmark, path, items, chosen.parallel, folder)
        theirs = their_ways(chosen.benchmark, path, items, chosen.parallel, chosen.evalplus_python, folder)
        rounds = in_turns({OURS: ours, **theirs}, chosen.rounds)
        verdicts = {"right": right(folder), "other_verdicts": other_verdicts(folder)}
    part = {**about, "items": len(items), **verdicts, **figures(rounds)}
    found = keep(chosen.out, {f"{chosen.benchmark}, {chosen.parallel} at a time": part}, bars)
    print(json.dumps({"ratios": part["ratios"], "bars": found["bars"]}, indent=1))


def our_way(benchmark: str, path: Path, items: Sequence[Item], workers: int, folder: Path) -> Way:
    out = folder / "ours.jsonl"
    command = grade_command(benchmark, {item.id: canonical(item) for item in items}, path.resolve(), out, workers)

    def run() -> dict[str, float]:
        for file in (out, out.with_suffix(".json")):
            file.unlink(missing_ok=True)  # else it would go on where it stopped
        return spent(command, folder / "ours.log")

    return run


def their_ways(benchmark: str, path: Path, items: Sequence[Item], workers: int, python: str, folder: Path) -> dict[str, Way]:
    """evalplus without and with what it keeps of an earlier call."""
    dataset, variable = DATASETS[benchmark]
    rows = [{"task_id": item.id, "solution": canonical(item)} for item in items]
    samples, cache, result = write_lines(folder / "theirs.jsonl", rows), folder / "cache", folder / "theirs_eval_results.json"
    environment = {**os.environ, variable: str(path.resolve()), "XDG_CACHE_HOME": str(cache)}
    command = [python, "-m", "evalplus.evaluate", "--dataset", dataset, "--samples", str(samples), "--parallel", str(workers), *LIMITS]

    def run(forget: bool) -> dict[str, float]:
        result.unlink(missing_ok=True)
        if forget:
            shutil.rmtree(cache, ignore_errors=True)
        return spent(command, folder / "theirs.log", result, environment)

    return {FIRST: lambda: run(forget=True), AGAIN: lambda: run(forget=False)}


def in_turns(ways: Mapping[str, Way], rounds: int) -> dict[str, list[dict[str, float]]]:
    """Every way once a round, each round beginning with another; ``again`` always finds the cache of some ``first``."""
    names = list(ways)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            found[name].append(ways[name]())
            print(turn + 1, name, found[name][-1], flush=True)
    return found


def figures(rounds: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Median, smallest and largest of every column, and of ours over theirs within a round."""
    ratios = {
        name: {
            column: spread([ours[column] / theirs[column] for ours, theirs in zip(rounds[OURS], rounds[name], strict=True)])
            for column in ("process", "verdicts", "cpu")
        }
        for name in (FIRST, AGAIN)
    }
    return {"rounds": len(rounds[OURS]), "seconds": {name: columns(rows) for name, rows in rounds.items()}, "ratios": ratios}


def bars(parts: Parts) -> dict[str, dict[str, Any]]:
    """Of HumanEval+: the time to all verdicts over evalplus's."""
    return {
        f"{part}: populora over {name}": at_most(BAR, found["ratios"][name]["verdicts"]["median"])
        for part, found in parts.items()
        if part.startswith("humaneval_plus")
        for name in (FIRST, AGAIN)
    }


def verdicts_of(folder: Path) -> tuple[dict[str, bool], dict[str, bool]]:
    """Ours and evalplus's of the last round, by item."""
    lines = [json.loads(line) for line in (folder / "ours.jsonl").read_text().splitlines()]
    theirs = json.loads((folder / "theirs_eval_results.json").read_text())["eval"]
    passed = {name: one["base_status"] == one["plus_status"] == "pass" for name, (one,) in theirs.items()}
    return {line["item_id"]: line["correct"] for line in lines}, passed


def right(folder: Path) -> dict[str, int]:
    ours, theirs = verdicts_of(folder)
    return {"populora": sum(ours.values()), "evalplus": sum(theirs.values())}


def other_verdicts(folder: Path) -> list[str]:
    ours, theirs = verdicts_of(folder)
    return [name for name, correct in ours.items() if theirs[name] != correct]


def versions_of(python: str) -> dict[str, str]:
    """Of the other interpreter."""
    asked = "import platform, importlib.metadata as m; print(platform.python_version(), m.version('evalplus'), m.version('numpy'))"
    found = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    return dict(zip(("python", "evalplus", "numpy"), found, strict=True))


if __name__ == "__main__":
    main()
