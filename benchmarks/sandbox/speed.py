"""Run trivial programs, all different, in several ways: how many a second, how long each takes, what it costs."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.measuring import noise, spread, take_turns, timed

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
SUBPROCESSES = {SUBPROCESS: (sys.executable, "-I"), SUBPROCESS_LEAN: (sys.executable, "-I", "-S"), SUBPROCESS_BASE: (BASE, "-I")}
SHARES = {SUBPROCESS: 0.25, SUBPROCESS_LEAN: 0.25, SUBPROCESS_BASE: 0.1}
"""Programs in a burst, as a share of those of the faster ways: every burst is to take about as long."""

Way = Callable[[list[int], bool], Sequence[float]]
"""Runs one program a number; with True one by one, to return the seconds of each. Raises `SystemExit` for wrong values."""
Burst = dict[str, float]


def pool_name(tier: Tier, workers: int, twice: bool) -> str:
    return f"populora, tier {tier}, {workers} worker{'s'[: workers - 1]}, {'complete check' if twice else 'once'}"


def measure_speed(rounds: int, programs: int) -> dict[str, Any]:
    """Run every way once a round; return medians over the rounds and ratios within each."""
    numbers = itertools.count()
    with ExitStack() as stack:
        ways, tier, skipped = start_ways(stack)
        for way in ways.values():
            way(list(itertools.islice(numbers, 10)), False)
        cases = {
            name: lambda name=name, way=way: burst(way, numbers, max(10, int(programs * SHARES.get(name, 1)))) for name, way in ways.items()
        }
        bursts, disturbance = noise(lambda: take_turns(cases, rounds))
    return {
        "tier": tier,
        "skipped": skipped,
        "ways": {name: {figure: spread([row[figure] for row in rows]) for figure in rows[0]} for name, rows in bursts.items()},
        "ratios": ratios(bursts, tier),
        "noise": disturbance,
    }


def burst(way: Way, numbers: itertools.count[int], count: int) -> Burst:
    """Run ``count`` programs in one burst; ways that return no times run half as many again, one by one."""
    seconds, wall, cpu = timed(lambda: way(list(itertools.islice(numbers, count)), False))
    seconds = sorted(seconds or way(list(itertools.islice(numbers, (count + 1) // 2)), True))
    return {
        "programs_per_second": count / wall,
        "p50_ms": 1000 * statistics.median(seconds),
        "p99_ms": 1000 * seconds[int(0.99 * (len(seconds) - 1))],
        "cpu_ms": 1000 * cpu / count,
    }


def ratios(bursts: Mapping[str, Sequence[Burst]], tier: Tier) -> dict[str, dict[str, float]]:
    """Return ratios of programs a second within a round."""
    (once, pair), (check, pair_check) = ((pool_name(tier, workers, twice) for workers in (1, 2)) for twice in (False, True))
    pairs = {f"populora against {other}": (once, other) for other in (*SUBPROCESSES, FORK_GUARDED, FORK)}
    pairs |= {f"populora by default, with 2 workers, against {other}": (pair, other) for other in SUBPROCESSES}
    pairs |= {"two workers against one, once": (pair, once), "two workers against one, complete check": (pair_check, check)}
    rates = {name: [row["programs_per_second"] for row in rows] for name, rows in bursts.items()}
    return {
        title: spread([ours / theirs for ours, theirs in zip(rates[one], rates[other], strict=True)])
        for title, (one, other) in pairs.items()
    }


def start_ways(stack: ExitStack) -> tuple[dict[str, Way], Tier, dict[str, str]]:
    """Return all ways that this machine has, its strongest tier, and the reasons why it lacks others."""
    ways: dict[str, Way] = {}
    skipped: dict[str, str] = {}
    tiers: list[Tier] = []
    for tier in ("full", "standard"):
        try:
            pool = stack.enter_context(SandboxPool(PROFILES["training"], workers=1, tier=tier))
        except SandboxUnavailableError as error:
            skipped[f"tier {tier}"] = str(error)
            continue
        tiers.append(tier)
        ways[pool_name(tier, 1, False)] = in_pool(pool, 1, twice=False)
        if len(tiers) > 1:
            continue
        ways[pool_name(tier, 1, True)] = in_pool(pool, 1, twice=True)
        pair = stack.enter_context(SandboxPool(PROFILES["training"], workers=2, tier=tier))
        ways |= {pool_name(tier, 2, twice): in_pool(pair, 2, twice) for twice in (False, True)}
    if not tiers:
        raise SystemExit(f"nothing to measure: {'; '.join(skipped.values())}")
    ways |= {name: in_subprocess(*interpreter) for name, interpreter in SUBPROCESSES.items()}
    ways |= {FORK_GUARDED: in_fork(stack, "--guard"), FORK: in_fork(stack)}
    return ways, tiers[0], skipped


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

    def check(verdicts: Sequence[Verdict], numbers: list[int]) -> None:
        wrong = [verdict for verdict, number in zip(verdicts, numbers, strict=True) if not is_value(verdict, number + 1)]
        if wrong:
            raise SystemExit(f"the pool gave {len(wrong)} wrong verdicts, such as {wrong[0]}")

    return run


def is_value(verdict: Verdict, value: int) -> bool:
    return verdict.ok and verdict.values[0].literal == str(value)


def in_subprocess(*interpreter: str) -> Way:
    def run(numbers: list[int], _: bool) -> list[float]:
        seconds = []
        for number in numbers:
            started = time.perf_counter()
            command = [*interpreter, "-c", f"{program(number)}\nprint(repr(f(1)))"]
            printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            seconds.append(time.perf_counter() - started)
            if printed != f"{number + 1}\n":
                raise SystemExit(f"a subprocess printed {printed!r}")
        return seconds

    return run


def in_fork(stack: ExitStack, *guard: str) -> Way:
    """Return the way of ``fork_checker.py``, in a small process of its own."""
    command = [sys.executable, str(HERE / "fork_checker.py"), *guard]
    checker = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def run(numbers: list[int], _: bool) -> list[float]:
        assert checker.stdin is not None and checker.stdout is not None  # noqa: S101 - both are pipes
        print(json.dumps(numbers), file=checker.stdin, flush=True)
        answer = json.loads(checker.stdout.readline())
        if answer["wrong"]:
            raise SystemExit(f"fork_checker.py {' '.join(guard)}: {answer['wrong']} wrong values")
        return answer["seconds"]

    return run
