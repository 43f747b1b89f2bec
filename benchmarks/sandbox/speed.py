"""Trivial programs, all different, run in several ways side by side: how many a second, how long each takes, what it costs."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from processes import noise, timed

from populora.core.errors import SandboxUnavailableError
from populora.sandbox.layers import Tier
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import PROFILES, Job, Verdict

HERE = Path(__file__).parent
SUBPROCESS = "subprocess, python -I -c"
SUBPROCESS_LEAN = "subprocess, python -I -S -c (no site-packages)"
SUBPROCESS_BASE = "subprocess, python -I -c of the interpreter below the virtual environment, which the sandbox runs too"
BASE = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
FORK_GUARDED = "fork of a small parent, evalplus style, with guard"
FORK = "fork of a small parent, bare"
IN_PROCESS = "one warm interpreter, AZR style, no isolation"
SUBPROCESSES = {SUBPROCESS: sys.executable, SUBPROCESS_LEAN: sys.executable, SUBPROCESS_BASE: BASE}
PEERS = {FORK_GUARDED: "fork_guarded", FORK: "fork", IN_PROCESS: "in_process"}
SHARES = {SUBPROCESS: 0.25, SUBPROCESS_LEAN: 0.25, SUBPROCESS_BASE: 0.1, IN_PROCESS: 5}
"""Programs in a burst, as a share of what the other ways run: every burst is to take about as long."""

Way = Callable[[list[int], bool], list[float]]
"""Runs one program a number; with True one by one, as far as it has workers, for the seconds of each. Wrong values are an error."""


def pool_name(tier: Tier, workers: int, twice: bool) -> str:
    return f"populora, tier {tier}, {workers} worker{'s'[: workers - 1]}, {'complete check' if twice else 'once'}"


def measure_speed(rounds: int, programs: int) -> dict[str, Any]:
    """Every way once a round, each round beginning with another; medians over the rounds, ratios within each."""
    numbers = itertools.count()
    measured: list[dict[str, dict[str, float]]] = []
    noises = []
    with ExitStack() as stack:
        ways, tier, lacking = start_ways(stack)
        names = list(ways)
        for way in ways.values():
            way(list(itertools.islice(numbers, 10)), False)
        for turn in range(rounds):
            first = turn % len(names)

            def once_each(order: list[str] = names[first:] + names[:first]) -> dict[str, dict[str, float]]:
                return {name: burst(ways[name], numbers, max(10, int(programs * SHARES.get(name, 1)))) for name in order}

            found, disturbed = noise(once_each)
            measured.append(found)
            noises.append(disturbed)
    figures = measured[0][names[0]]
    return {
        "tier": tier,
        "skipped": lacking,
        "ways": {name: {figure: spread(found[name][figure] for found in measured) for figure in figures} for name in names},
        "ratios": {name: spread(compare(found) for found in measured) for name, compare in ratios(tier).items()},
        "noise": {figure: spread(found[figure] for found in noises) for figure in noises[0]},
    }


def burst(way: Way, numbers: itertools.count[int], count: int) -> dict[str, float]:
    """Figures of ``count`` programs in one burst. Ways that do not tell of each are asked for half as many again, one by one."""
    each, wall, cpu = timed(lambda: way(list(itertools.islice(numbers, count)), False))
    each = sorted(each or way(list(itertools.islice(numbers, (count + 1) // 2)), True))
    return {
        "programs_per_second": count / wall,
        "p50_ms": 1000 * statistics.median(each),
        "p99_ms": 1000 * each[int(0.99 * (len(each) - 1))],
        "cpu_ms": 1000 * cpu / count,
    }


def ratios(tier: Tier) -> dict[str, Callable[[dict[str, dict[str, float]]], float]]:
    """Programs a second in relation, from the bursts of one round."""

    def of(one: str, other: str) -> Callable[[dict[str, dict[str, float]]], float]:
        return lambda found: found[one]["programs_per_second"] / found[other]["programs_per_second"]

    once = pool_name(tier, 1, False)
    return {
        **{f"populora against {other}": of(once, other) for other in (*SUBPROCESSES, FORK_GUARDED, FORK, IN_PROCESS)},
        **{f"populora by default, with 2 workers, against {other}": of(pool_name(tier, 2, False), other) for other in SUBPROCESSES},
        "two workers against one, once": of(pool_name(tier, 2, False), once),
        "two workers against one, complete check": of(pool_name(tier, 2, True), pool_name(tier, 1, True)),
    }


def spread(values: Any) -> dict[str, float]:
    found = sorted(values)
    return {"min": round(found[0], 3), "median": round(statistics.median(found), 3), "max": round(found[-1], 3)}


def start_ways(stack: ExitStack) -> tuple[dict[str, Way], Tier, dict[str, str]]:
    """All ways that this machine has, its strongest tier, and why it lacks others."""
    found: dict[str, Way] = {}
    lacking: dict[str, str] = {}
    tiers: list[Tier] = []
    for tier in ("full", "standard"):
        try:
            pool = stack.enter_context(SandboxPool(PROFILES["training"], workers=1, tier=tier))
        except SandboxUnavailableError as error:
            lacking[f"tier {tier}"] = str(error)
            continue
        tiers.append(tier)
        found[pool_name(tier, 1, False)] = in_pool(pool, 1, twice=False)
        if len(tiers) > 1:
            continue
        found[pool_name(tier, 1, True)] = in_pool(pool, 1, twice=True)
        pair = stack.enter_context(SandboxPool(PROFILES["training"], workers=2, tier=tier))
        found |= {pool_name(tier, 2, twice): in_pool(pair, 2, twice) for twice in (False, True)}
    if not tiers:
        raise SystemExit(f"nothing to measure: {'; '.join(lacking.values())}")
    for name, interpreter in SUBPROCESSES.items():
        found[name] = in_subprocess(interpreter, *(["-I", "-S"] if name == SUBPROCESS_LEAN else ["-I"]))
    found |= {name: in_peer(stack, argument) for name, argument in PEERS.items()}
    return found, tiers[0], lacking


def program(number: int) -> str:
    return f"def f(x):\n    return x + {number}"


def in_pool(pool: SandboxPool, workers: int, twice: bool) -> Way:
    def run(numbers: list[int], one_by_one: bool) -> list[float]:
        jobs = [Job("run", program(number), ("1",)) for number in numbers]
        if not one_by_one:
            check(pool.run(jobs, twice), numbers)
            return []
        with ThreadPoolExecutor(workers) as callers:
            verdicts, seconds = zip(*callers.map(alone, jobs), strict=True)
        check(verdicts, numbers)
        return list(seconds)

    def alone(job: Job) -> tuple[Verdict, float]:
        started = time.perf_counter()
        (verdict,) = pool.run([job], twice)
        return verdict, time.perf_counter() - started

    def check(verdicts: Any, numbers: list[int]) -> None:
        wrong = [verdict for verdict, number in zip(verdicts, numbers, strict=True) if not is_value(verdict, number + 1)]
        if wrong:
            raise SystemExit(f"the pool gave {len(wrong)} wrong verdicts, such as {wrong[0]}")

    return run


def is_value(verdict: Verdict, value: int) -> bool:
    return verdict.ok and verdict.values[0].literal == str(value)


def in_subprocess(*interpreter: str) -> Way:
    def run(numbers: list[int], _: bool) -> list[float]:
        each = []
        for number in numbers:
            started = time.perf_counter()
            command = [*interpreter, "-c", f"{program(number)}\nprint(repr(f(1)))"]
            printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            each.append(time.perf_counter() - started)
            if printed != f"{number + 1}\n":
                raise SystemExit(f"a subprocess printed {printed!r}")
        return each

    return run


def in_peer(stack: ExitStack, argument: str) -> Way:
    """A way of ``peers.py``, in a small process of its own."""
    command = [sys.executable, str(HERE / "peers.py"), argument]
    peer = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def run(numbers: list[int], _: bool) -> list[float]:
        assert peer.stdin is not None and peer.stdout is not None  # noqa: S101 - pipes were asked for
        print(json.dumps(numbers), file=peer.stdin, flush=True)
        answer = json.loads(peer.stdout.readline())
        if answer["wrong"]:
            raise SystemExit(f"{argument}: {answer['wrong']} wrong values")
        return answer["each"]

    return run
