"""What the kernel tells of this process and all below it: CPU time, memory, descriptors, and how busy the machine is with others."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

TICK = 1 / os.sysconf("SC_CLK_TCK")
"""Seconds. The kernel counts finer and rounds each number that it shows down to a tick, so errors of a burst cancel out on average."""


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """The result of ``work``, its seconds of wall time and of CPU time, the latter of this process and of all below it."""
    below, own, started = seconds_below(), own_seconds(), time.perf_counter()
    result = work()
    wall, own = time.perf_counter() - started, own_seconds() - own
    return result, wall, own + seconds_below() - below


def own_seconds() -> float:
    """CPU time of this process and of its children that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def seconds_below() -> float:
    """CPU time of the living processes below this one and of the children that they have seen ended."""
    return sum(sum(map(int, fields[11:15])) for fields in descendants().values()) * TICK


def descendants() -> dict[int, list[str]]:
    """Of each process below this one, what ``/proc/<pid>/stat`` says from the state on."""
    everyone = dict(map(_stat, (entry for entry in os.listdir("/proc") if entry.isdigit())))
    found: dict[int, list[str]] = {}
    parents = {os.getpid()}
    while parents:
        born = {pid: fields for pid, fields in everyone.items() if fields and int(fields[1]) in parents}
        found |= born
        parents = set(born)
    return found


def _stat(pid: str) -> tuple[int, list[str]]:
    try:
        return int(pid), Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return int(pid), []  # it has just ended


def memory_mb(pids: Iterable[int]) -> dict[str, float] | None:
    """Memory of these processes together: all that is mapped and there, their share of it, and what is theirs alone.

    None where the kernel does not show it: it may keep processes that cannot be dumped, as the sandbox's are, from all but root.
    """
    sums = {"rss": 0, "pss": 0, "private": 0}
    try:
        for pid in pids:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
            sizes = {line.partition(":")[0]: int(line.split()[1]) for line in rollup}
            sums["rss"] += sizes["Rss"]
            sums["pss"] += sizes["Pss"]
            sums["private"] += sizes["Private_Clean"] + sizes["Private_Dirty"]
    except PermissionError:
        return None
    return {name: round(kilobytes / 1024, 3) for name, kilobytes in sums.items()}


def descriptors(pids: Iterable[int]) -> int | None:
    """How many files these processes have open together; None where the kernel does not show it."""
    try:
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)
    except PermissionError:
        return None


def machine_seconds() -> dict[str, float]:
    """Since boot, over all cores: time at work in here, time that the host of a virtual machine gave to others, and all time."""
    ticks = [int(field) * TICK for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return {"busy": sum(ticks) - ticks[3] - ticks[4] - ticks[7], "stolen": ticks[7], "all": sum(ticks)}


def noise(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """The result of ``work``, and what share of all cores' time the host took and other processes of this machine used meanwhile."""
    before = machine_seconds()
    result, _, ours = timed(work)
    spent = {name: after - before[name] for name, after in machine_seconds().items()}
    return result, {
        "stolen_percent": round(100 * spent["stolen"] / spent["all"], 1),
        "others_percent": round(100 * max(0.0, spent["busy"] - ours) / spent["all"], 1),
    }
