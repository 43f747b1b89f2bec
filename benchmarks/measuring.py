"""Shared by the benchmarks: interleaved timing, medians with their spread, CPU time of whole process trees, and result files.

Every round runs all cases once and begins with another case, so that a disturbance hits neighbouring cases alike. A ratio is the median
over the rounds of the ratio within a round.
"""

import argparse
import gc
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from populora.core.installed import processor, versions

ROOT = Path(__file__).parents[1]
POPULORA = (sys.executable, "-m", "populora.cli.main")
Case = Callable[[], object]
Times = dict[str, list[float]]
"""Seconds of each round, by case."""
TICK = 1 / os.sysconf("SC_CLK_TCK")
"""Seconds of a tick in ``/proc``. The kernel rounds each number down to a tick; over a burst the errors cancel out on average."""
LINE = 140


def options(description: str | None, out: Path | None, rounds: int | None = None) -> argparse.ArgumentParser:
    """Return a parser that has ``--out``, without a file by default if ``out`` is None, and, if a default is given, ``--rounds``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=out)
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds)
    return parser


def machine(*libraries: str) -> dict[str, Any]:
    """Return the processor, its cores, the load, the date, the commit and the versions of ``libraries``. Call it before measuring."""
    load, date = round(os.getloadavg()[0], 2), time.strftime("%Y-%m-%d", time.gmtime())
    source = {"commit": name} if (name := commit()) else {}
    return {"processor": processor(), "cores": os.cpu_count(), "load_before": load, "date": date, **source, **versions(libraries)}


def commit() -> str | None:
    """Name the commit of the sources, with a + if the package or a benchmark's code differs from it. None outside a git repository."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        return None
    name = git("rev-parse", "--short=12", "HEAD").decode().strip()
    return name + "+" * bool(git("status", "--porcelain", "--", "src", "benchmarks/*.py"))


def git(*arguments: str) -> bytes:
    """Return what a git command prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout  # noqa: S607


def write_results(path: Path | None, results: Any) -> None:
    """Write results as JSON, if there is a ``path``, and print them. A value that fits on a line gets one line."""
    print(save_results(path, results), end="")


def save_results(path: Path | None, results: Any) -> str:
    """Write results as JSON, if there is a ``path``, and return the text."""
    text = _json(results) + "\n"
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return text


def _json(value: Any, margin: str = "", used: int = 0) -> str:
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if not isinstance(value, dict | list) or len(margin) + used + len(line) <= LINE:
        return line
    inner = margin + " "
    if isinstance(value, dict):
        keys = [(f"{json.dumps(str(key), ensure_ascii=False)}: ", item) for key, item in value.items()]
        lines = [inner + key + _json(item, inner, len(key)) for key, item in keys]
        return "{\n" + ",\n".join(lines) + f"\n{margin}}}"
    return "[\n" + ",\n".join(inner + _json(item, inner) for item in value) + f"\n{margin}]"


def bar(limit: float, measured: float, at_least: bool = False) -> dict[str, Any]:
    """Return a bar with the measured value and whether it is met."""
    side = "at_least" if at_least else "at_most"
    return {side: limit, "found": measured, "met": measured >= limit if at_least else measured <= limit}


def take_turns(cases: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[Any]]:
    """Return the results of each case in each of ``rounds`` rounds."""
    names = list(cases)
    results: dict[str, list[Any]] = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            gc.collect()
            results[name].append(cases[name]())
    return results


def interleaved(cases: Mapping[str, Case], rounds: int, clock: Callable[[], float] = time.process_time) -> Times:
    """Return the seconds of each case in each round, after one round that is not counted. Default: CPU seconds of this process."""

    def seconds(case: Case) -> float:
        started = clock()
        case()
        return clock() - started

    for case in cases.values():
        case()
    return take_turns({name: lambda case=case: seconds(case) for name, case in cases.items()}, rounds)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, smallest and largest."""
    return {"median": round(statistics.median(values), 3), "min": round(min(values), 3), "max": round(max(values), 3)}


def columns(rows: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return median, smallest and largest of each column."""
    return {name: spread([row[name] for row in rows]) for name in rows[0]}


def ratio(times: Mapping[str, Sequence[float]], above: str, below: str) -> dict[str, float]:
    """Return median, smallest and largest ratio of two cases within a round."""
    return spread([a / b for a, b in zip(times[above], times[below], strict=True)])


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return the result of ``work``, its wall seconds, and the CPU seconds of this process and all below it."""
    below, cpu, started = seconds_below(), own_seconds(), time.perf_counter()
    result = work()
    wall, cpu = time.perf_counter() - started, own_seconds() - cpu
    return result, wall, cpu + seconds_below() - below


def own_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def seconds_below() -> float:
    """Return the CPU time of the living processes below this one and of their children that have ended."""
    return sum(sum(map(int, fields[11:15])) for fields in descendants().values()) * TICK


def descendants() -> dict[int, list[str]]:
    """Return ``/proc/<pid>/stat`` from the state on, for each process below this one."""
    processes = dict(map(_stat, (entry for entry in os.listdir("/proc") if entry.isdigit())))
    below: dict[int, list[str]] = {}
    parents = {os.getpid()}
    while parents:
        children = {pid: fields for pid, fields in processes.items() if fields and int(fields[1]) in parents}
        below |= children
        parents = set(children)
    return below


def _stat(pid: str) -> tuple[int, list[str]]:
    try:
        return int(pid), Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return int(pid), []  # it has just ended


def machine_seconds() -> dict[str, float]:
    """Return seconds since boot over all cores: busy, taken by the host of a virtual machine, and all."""
    ticks = [int(field) * TICK for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return {"busy": sum(ticks) - ticks[3] - ticks[4] - ticks[7], "stolen": ticks[7], "all": sum(ticks)}


def noise(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return the result of ``work``, and the shares of all cores' time that the host and other processes used meanwhile."""
    before = machine_seconds()
    result, _, ours = timed(work)
    spent = {name: after - before[name] for name, after in machine_seconds().items()}
    return result, {
        "stolen_percent": round(100 * spent["stolen"] / spent["all"], 1),
        "others_percent": round(100 * max(0.0, spent["busy"] - ours) / spent["all"], 1),
    }
