"""Measure what a busy machine costs a run: steps of the tiny presets beside endless loops, with one torch thread and with two.

    python -m benchmarks.contention [--steps 5] [--rounds 2]      writes contention.json; an idle machine with two cores, an hour

Each run is `populora train` in a process of its own, with the same seed; its first step is not counted. With ``loops`` endless loops
on ``cores`` cores, a run that keeps one core busy has a fair share of ``cores / (loops + 1)`` of a core, at most 1. ``of_fair_time`` is the
time of a step over ``quiet seconds x max(1, (loops + 1) / cores)``: the goal is at most 2.
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from benchmarks.measuring import POPULORA, machine, options, write_results

from populora.runs.metrics_log import TIMINGS, read_log

PRESETS, LOOPS, THREADS = ("tiny", "tiny_4t4s"), (0, 1, 2), (1, 2)
LOOP = """
import os
parent = os.getppid()
while os.getppid() == parent:  # end with the benchmark
    for _ in range(1_000_000):
        pass
"""


def main() -> None:
    parser = options(__doc__, Path(__file__).with_suffix(".json"), rounds=2)
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    about = {"machine": machine("populora", "torch"), "steps": args.steps - 1, "rounds": args.rounds}
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that a run under way ends too
    seconds: dict[tuple[str, int, int], list[float]] = {}
    for _, preset, loops, threads in product(range(args.rounds), PRESETS, LOOPS, THREADS):
        with busy_loops(loops):
            seconds.setdefault((preset, loops, threads), []).extend(step_seconds(preset, threads, args.steps)[1:])
    rows = result_rows(seconds, os.cpu_count() or 1)
    write_results(args.out, {**about, "rows": rows})


def result_rows(seconds: Mapping[tuple[str, int, int], Sequence[float]], cores: int) -> list[dict[str, float | str]]:
    """Return a row for each preset, number of loops and number of threads, from the times of steps by these three."""
    means = {key: statistics.fmean(times) for key, times in seconds.items()}
    return [
        {
            "preset": preset, "loops": loops, "threads": threads, "step_seconds": round(mean, 2),
            "of_fair_time": round(mean / (means[preset, 0, threads] * max(1.0, (loops + 1) / cores)), 2),
        }
        for (preset, loops, threads), mean in means.items()
    ]  # fmt: skip


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep ``count`` processes computing without end."""
    processes = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def step_seconds(preset: str, threads: int, steps: int) -> list[float]:
    """Return the seconds of each step of a run of ``steps`` steps, started by the command."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        settings = ("--steps", str(steps), "--threads", str(threads), "--evaluation.every", "0", "--out", str(run))
        subprocess.run([*POPULORA, "train", preset, *settings], check=True, stdout=subprocess.DEVNULL)
        return [line["seconds/step"] for line in read_log(run, TIMINGS)]


if __name__ == "__main__":
    main()
