"""Measure how long commands take to start, each in a process of its own: wall seconds from its start.

    python -m benchmarks.start_up [--rounds 5] [--steps 200]        writes start_up.json

`populora --help` is measured to its end, `populora train` (the tiny preset) to the end of its first decoding step, and `populora report` to
its end. The report is that of ``steps`` steps of 2T+2S. They are much smaller than the preset's, so a report of a full run takes longer.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import POPULORA, bar, machine, options, spread, take_turns, write_results

LIMITS = {"help": 0.3, "first token": 6.0, "report": 10.0}
SMALL = ("--selfplay.prompts-per-type=1", "--selfplay.rho-samples=2", "--selfplay.max-response-tokens=64", "--evaluation.every=0")
MARK = "first decoding step done"
TRAIN = f"""
import sys
from populora.cli.main import main
from populora.engine.sampling.batch import ContinuousBatch
step = ContinuousBatch.step
def first(batch):
    done, ContinuousBatch.step = step(batch), step
    print({MARK!r}, file=sys.stderr, flush=True)
    return done
ContinuousBatch.step = first
main()
"""
"""The command, with a line to stderr after the first decoding step."""


def main() -> None:
    parser = options(__doc__, Path(__file__).with_suffix(".json"), rounds=5)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    about = {"machine": machine("populora", "torch"), "rounds": args.rounds, "steps": args.steps}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        checkpoints = ("--checkpoint-every", str(args.steps))
        finish([*POPULORA, "train", "--steps", str(args.steps), "--out", str(run), *SMALL, *checkpoints])
        cases = {
            "help": lambda: finish([*POPULORA, "--help"]),
            "first token": first_token,
            "report": lambda: finish([*POPULORA, "report", str(run), "--out", str(Path(folder) / "report.html")]),
        }
        seconds = take_turns(cases, args.rounds)
    write_results(args.out, {**about, **judge(seconds)})


def judge(seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Return the spread of each case's seconds, and its bar, which the median must meet."""
    spreads = {name: spread(values) for name, values in seconds.items()}
    return {"seconds": spreads, "bars": {name: bar(limit, spreads[name]["median"]) for name, limit in LIMITS.items()}}


def finish(command: Sequence[str]) -> float:
    """Return the seconds of a command that must succeed."""
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def first_token() -> float:
    """Return the seconds of `populora train` to the end of its first decoding step. The step is finished but not counted."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", TRAIN, "train", "--steps", "1", "--out", str(Path(folder) / "run"), "--evaluation.every", "0"]
        started, seconds = time.perf_counter(), None
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            for line in process.stderr or ():
                if MARK in line:
                    seconds = time.perf_counter() - started
        if process.returncode or seconds is None:
            raise RuntimeError(f"populora train ended with status {process.returncode}; expected 0 and a first decoding step.")
        return seconds


if __name__ == "__main__":
    main()
