"""Run trivial programs, all different, in several ways: how many a second, and the CPU time of each."""

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.measuring import columns, noise, ratio, take_turns, timed

from populora.sandbox.layers import Tier
from populora.sandbox.pool import SandboxPool
from populora.sandbox.protocol import PROFILES, Job, Verdict

HERE = Path(__file__).parent
SUBPROCESS = "subprocess, python -I -S -c"
"""The sandbox starts its interpreter without site-packages (-S), too."""
FORK_GUARDED = "fork of a small parent, evalplus style, with guard"
FORK = "fork of a small parent, bare"
SHARES = {SUBPROCESS: 0.25}
"""Programs in a burst, as a share of those of the faster ways: every burst is to take about as long."""

Way = Callable[[list[int]], None]
"""Runs one program a number. Raises `SystemExit` for wrong values."""
Burst = dict[str, float]


def pool_name(tier: Tier, workers: int, twice: bool) -> str:
    return f"populora, tier {tier}, {workers} worker{'s'[: workers - 1]}, {'complete check' if twice else 'once'}"


def measure_speed(rounds: int, programs: int) -> dict[str, Any]:
    """Run every way once a round; return medians over the rounds and ratios within each."""
    numbers = itertools.count()
    with ExitStack() as stack:
        ways, tier = start_ways(stack)
        for way in ways.values():
            way(list(itertools.islice(numbers, 10)))
        counts = {name: max(10, int(programs * SHARES.get(name, 1))) for name in ways}
        cases = {name: lambda name=name: burst(ways[name], list(itertools.islice(numbers, counts[name]))) for name in ways}
        bursts, disturbance = noise(lambda: take_turns(cases, rounds))
    return {
        "tier": tier,
        "ways": {name: columns(rows) for name, rows in bursts.items()},
        "ratios": ratios(bursts, tier),
        "noise": disturbance,
    }


def burst(way: Way, numbers: list[int]) -> Burst:
    _, wall, cpu = timed(lambda: way(numbers))
    return {"programs_per_second": len(numbers) / wall, "cpu_ms": 1000 * cpu / len(numbers)}


def ratios(bursts: Mapping[str, Sequence[Burst]], tier: Tier) -> dict[str, dict[str, float]]:
    """Return ratios of programs a second within a round."""
    (once, pair), (check, pair_check) = ((pool_name(tier, workers, twice) for workers in (1, 2)) for twice in (False, True))
    pairs = {f"populora against {other}": (once, other) for other in (SUBPROCESS, FORK_GUARDED, FORK)}
    pairs[f"populora by default, with 2 workers, against {SUBPROCESS}"] = (pair, SUBPROCESS)
    pairs |= {"two workers against one, once": (pair, once), "two workers against one, complete check": (pair_check, check)}
    rates = {name: [row["programs_per_second"] for row in rows] for name, rows in bursts.items()}
    return {title: ratio(rates, *names) for title, names in pairs.items()}


def start_ways(stack: ExitStack) -> tuple[dict[str, Way], Tier]:
    """Return all ways, and the tier of the pools: the strongest that this machine has."""
    pools = {workers: stack.enter_context(SandboxPool(PROFILES["training"], workers, allow_weak=True)) for workers in (1, 2)}
    tier = pools[1].tier
    ways = {pool_name(tier, workers, twice): in_pool(pool, twice) for workers, pool in pools.items() for twice in (False, True)}
    return ways | {SUBPROCESS: in_subprocess, FORK_GUARDED: in_fork(stack, "--guard"), FORK: in_fork(stack)}, tier


def program(number: int) -> str:
    return f"def f(x):\n    return x + {number}"


def in_pool(pool: SandboxPool, twice: bool) -> Way:
    def run(numbers: list[int]) -> None:
        verdicts = pool.run([Job("run", program(number), ("1",)) for number in numbers], twice)
        wrong = [verdict for verdict, number in zip(verdicts, numbers, strict=True) if not is_value(verdict, number + 1)]
        if wrong:
            raise SystemExit(f"the pool gave {len(wrong)} wrong verdicts, such as {wrong[0]}")

    return run


def is_value(verdict: Verdict, value: int) -> bool:
    return verdict.ok and verdict.values[0].literal == str(value)


def in_subprocess(numbers: list[int]) -> None:
    for number in numbers:
        command = [sys.executable, "-I", "-S", "-c", f"{program(number)}\nprint(repr(f(1)))"]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        if printed != f"{number + 1}\n":
            raise SystemExit(f"a subprocess printed {printed!r}")


def in_fork(stack: ExitStack, *guard: str) -> Way:
    """Return the way of ``fork_checker.py``, in a small process of its own."""
    command = [sys.executable, str(HERE / "fork_checker.py"), *guard]
    checker = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def run(numbers: list[int]) -> None:
        assert checker.stdin is not None and checker.stdout is not None  # noqa: S101 - both are pipes
        print(json.dumps(numbers), file=checker.stdin, flush=True)
        if wrong := json.loads(checker.stdout.readline()):
            raise SystemExit(f"fork_checker.py {' '.join(guard)}: {wrong} wrong values")

    return run
