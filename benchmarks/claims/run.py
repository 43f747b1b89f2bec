"""Train and measure every run of the claims campaign that has no files in `measured/` yet.

    python -m benchmarks.claims.run [arms|ideas|confirmation] [--jobs 2] [--minutes 150] [--only 4t4s agent]

First the pilot, which chooses the learning rates (`pilot.json`), then the runs of the arms in the order of `protocol.toml`; or those of its
ideas; or the confirmation of what `ideas.py` chose, after the runs that choose its agent's learning rate. A run that was stopped goes on
from its last checkpoint. Of a measured one the last adapters stay, in ROOT/adapters, and the rest of its folder goes. With ``--minutes`` no
run begins that would probably end later: the longest comparable run so far tells how long one takes.
"""

import shutil
import subprocess
import sys
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import pyarrow.parquet as pq
from benchmarks.claims.measure import USED
from benchmarks.claims.protocol import (
    PROTOCOL,
    Planned,
    confirmation_runs,
    control_runs,
    idea_runs,
    pilot_runs,
    planned_runs,
    together_runs,
)  # fmt: skip
from benchmarks.claims.rates import chosen_rates, ideas_table, missing
from benchmarks.measuring import POPULORA, options

HERE = Path(__file__).parent
TIMED = """
import resource, signal, subprocess, sys
training = subprocess.Popen(sys.argv[2:])
for end in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(end, signal.SIG_IGN)  # it ends with the training
code = training.wait()
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "a") as file:
    print(used.ru_utime + used.ru_stime, file=file)
sys.exit(code)
"""
"""A parent of the training that appends the CPU seconds of all its processes to a file, however the training ends."""


def main() -> None:
    parser = options(__doc__, HERE)
    parser.add_argument("part", nargs="?", default="arms", choices=("arms", "ideas", "confirmation"))
    parser.add_argument("--root", type=Path, default=Path("runs/claims"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run that would probably end later")
    names = sorted({*PROTOCOL["arms"], *PROTOCOL["ideas"]["arms"], "together", "cured"})
    parser.add_argument("--only", nargs="*", default=names, choices=names, help="arms or ideas to train")
    args = parser.parse_args()
    args.until = time.monotonic() + 60 * args.minutes
    complete(pilot_runs(), args)
    if args.part == "confirmation":
        complete(control_runs(cure_to_confirm(args.out)), args)
    runs = runs_of(args.part, chosen_rates(args.out), args.out)
    make([run for run in runs if run.arm.rpartition("/")[2] in args.only], args)


def complete(runs: Sequence[Planned], args: Namespace) -> None:
    """Make runs that choose learning rates. Raises `SystemExit` while some are missing: nothing else begins before."""
    make(runs, args)
    if missing(runs, args.out):
        raise SystemExit("the runs that choose learning rates are not complete: call again")


def runs_of(part: str, rates: Mapping[str, float], out: Path) -> list[Planned]:
    """List the runs of a part. What is put together and confirmed follows from the ideas' table."""
    if part == "arms":
        return planned_runs(rates)
    if part == "confirmation":
        return confirmation_runs(rates, cure_to_confirm(out))
    runs, first = idea_runs(rates), {f"ideas/{name}" for name in PROTOCOL["ideas"]["finalists"]}
    finalists, others = ([run for run in runs if (run.arm in first) is wanted] for wanted in (True, False))
    return finalists + together_runs(rates, ideas_table(out).get("taken") or ()) + others


def cure_to_confirm(out: Path) -> list[str]:
    """Name the ideas to confirm. Raises `SystemExit` while they are not chosen."""
    if names := ideas_table(out).get("chosen"):
        return names
    raise SystemExit("the ideas' table names no cure to confirm: train all ideas, then call benchmarks.claims.ideas")


def make(runs: Sequence[Planned], args: Namespace) -> None:
    """Train and measure those that are missing, ``jobs`` at a time."""
    clock = Clock(args.out / "measured")
    with ThreadPoolExecutor(args.jobs) as jobs:
        list(jobs.map(lambda run: _make_one(run, args, clock), missing(runs, args.out)))


def _make_one(run: Planned, args: Namespace, clock: "Clock") -> None:
    if time.monotonic() + clock.longest(run.arm) > args.until:
        return
    started, folder = time.monotonic(), args.root / run.name
    train(run, folder)
    shutil.copytree(folder / "adapters", args.root / "adapters" / run.name, dirs_exist_ok=True)
    target = str(args.out / "measured" / run.name)
    subprocess.run([sys.executable, "-m", "benchmarks.claims.measure", str(folder), target, *run.suites], check=True)
    shutil.rmtree(folder)
    clock.note(run.arm, time.monotonic() - started)
    print(f"{run.name}: {time.monotonic() - started:.0f} s", flush=True)


class Clock:
    """The longest time that a run of each arm took, first that of the training of the measured ones."""

    def __init__(self, measured: Path) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._changing = Lock()
        for file in measured.rglob("*.parquet"):
            if ".answers" not in file.name:
                arm = str(file.relative_to(measured)).rpartition("-")[0]
                self.note(arm, sum(pq.read_table(file, columns=["seconds"])["seconds"].to_pylist()))

    def longest(self, arm: str) -> float:
        return self._seconds[arm] or max(self._seconds.values(), default=0.0)

    def note(self, arm: str, seconds: float) -> None:
        with self._changing:
            self._seconds[arm] = max(self._seconds[arm], seconds)


def train(run: Planned, folder: Path) -> None:
    """Train a run, or go on with it, and note the CPU time of its processes, also if this process ends before them."""
    new = [*POPULORA, "train", PROTOCOL["preset"], "--seed", str(run.seed), "--out", str(folder), *run.flags()]
    command = [*POPULORA, "resume", str(folder)] if (folder / "config.json").exists() else new
    subprocess.run([sys.executable, "-c", TIMED, str(folder / USED), *command], stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    main()
