"""Compare a step of 2T+2S and of 4T+4S with an earlier commit's, on one thread.

    python -m benchmarks.old_and_new [--old COMMIT] [--rounds 4] [--steps 3]        writes old_and_new.json; eight minutes

It needs the git repository. The source of the earlier commit is unpacked into a temporary folder. Each run is ``populora train`` in a
process of its own, and the two sources take turns. Both read today's preset ``tiny`` and have the same seed, libraries and flags, without
evaluation and without checkpoints before the last step. First steps are not counted, nor is the writing of logs.

A row is the mean over a run's counted steps. ``wall`` is the step, ``sampling`` that part of it in which responses were decoded, ``cpu``
the CPU time of the process and its sandbox. Responses may drift apart, because the sources may round differently. So the steps are
comparable only if their sampled tokens agree within 2 %; the ratios for 1000 tokens take the rest out.
"""

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.measuring import ROOT, bar, columns, git, machine, noise, options, ratio, seconds_below, take_turns, write_results

from populora.core.presets import settings_file
from populora.runs.metrics_log import METRICS, TIMINGS, read_log

OLD = "baf0c56"
SIZES = (2, 4)
FASTER, DRIFT = 1.8, 0.02
MEASURES = ("wall", "cpu", "sampling")
PAUSE = 0.05
"""Seconds between two looks at a log."""
Rows = Mapping[str, Sequence[Mapping[str, float]]]
"""Measurements of each round, ``old`` and ``new``."""


def main() -> None:
    parser = options(__doc__, Path(__file__).with_suffix(".json"), rounds=4)
    parser.add_argument("--old", metavar="COMMIT", default=OLD)
    parser.add_argument("--steps", type=int, default=3, help="steps of a run; the first is not counted")
    args = parser.parse_args()
    about = {"machine": machine("populora", "torch"), "rounds": args.rounds, "counted steps of a run": args.steps - 1}
    with earlier_source(args.old) as old:
        sources = {"old": old, "new": ROOT / "src"}
        cases = {
            f"{size}T+{size}S {age}": lambda size=size, source=source: measure(source, size, args.steps)
            for size in SIZES
            for age, source in sources.items()
        }
        rows, disturbance = noise(lambda: take_turns(cases, args.rounds))
    results = {name: {age: rows[f"{name} {age}"] for age in sources} for name in (f"{size}T+{size}S" for size in SIZES)}
    write_results(args.out, {**about, "commits": commits(args.old), **judge(results), "noise": disturbance})


@contextmanager
def earlier_source(commit: str) -> Iterator[Path]:
    """Unpack ``src`` of a commit into a folder that is removed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(git("archive", commit, "src"))) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder) / "src"


def commits(old: str) -> dict[str, str]:
    """Return the short names of the two commits."""
    return {age: git("rev-parse", "--short", commit).decode().strip() for age, commit in (("old", old), ("new", "HEAD"))}


def measure(source: Path, size: int, steps: int, flags: Sequence[str] = ()) -> dict[str, float]:
    """Train ``size`` teachers and as many students with the package in ``source``. Return the means over all steps but the first."""
    command = "populora.cli.main" if (source / "populora" / "cli" / "main.py").exists() else "populora.cli"  # earlier a module
    population = [f"--population.{role}={size}" for role in ("teachers", "students")]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        options = ["--steps", str(steps), "--threads", "1", "--evaluation.every", "0", "--checkpoint-every", str(steps), "--out", str(run)]
        arguments = [sys.executable, "-m", command, "train", str(settings_file("tiny")), *population, *options, *flags]
        environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(arguments, cwd=folder, env=environment, stdout=subprocess.DEVNULL) as process:
            first, last = (cpu_seconds(process, run / METRICS, lines) for lines in (1, steps))
        if process.returncode:
            raise SystemExit(f"populora train of {source} ended with status {process.returncode}")
        return mean_step(read_log(run, TIMINGS)[1:], read_log(run)[1:], last - first)


def cpu_seconds(process: subprocess.Popen[bytes], log: Path, lines: int) -> float:
    """Wait until ``log`` has so many lines. Return the CPU time of the processes below this one."""
    while not log.exists() or log.read_bytes().count(b"\n") < lines:
        if process.poll() is not None:
            raise SystemExit(f"populora train ended with status {process.returncode}, before line {lines} of {log}")
        time.sleep(PAUSE)
    return seconds_below()


def mean_step(timings: Sequence[Mapping[str, float]], metrics: Sequence[Mapping[str, float]], cpu: float) -> dict[str, float]:
    """Return seconds and sampled tokens of a step, means over the lines of two logs, which took ``cpu`` seconds together."""
    tokens = fmean(line["tokens/propose"] + line["tokens/solve"] for line in metrics)
    seconds = {
        "wall": fmean(line["seconds/step"] - line["seconds/write"] for line in timings),
        "cpu": cpu / len(timings),
        "sampling": fmean(line["seconds/propose"] + line["seconds/solve"] for line in timings),
    }
    return {**seconds, **{f"{name}, for 1000 tokens": 1000 * seconds[name] / tokens for name in MEASURES}, "tokens": tokens}


def judge(results: Mapping[str, Rows]) -> dict[str, Any]:
    """Return each population's rows and ratios, and two bars: a step's wall time, and the largest difference of its tokens."""
    judged: dict[str, Any] = {}
    bars: dict[str, Any] = {}
    for size, rows in results.items():
        ratios = {name: ratio({age: [row[name] for row in rows[age]] for age in rows}, "old", "new") for name in rows["new"][0]}
        judged[size] = {**{age: columns(rows[age]) for age in rows}, "old / new": ratios}
        bars[f"{size}: old / new step"] = bar(FASTER, ratios["wall"]["median"], at_least=True)
        drift = max(abs(old["tokens"] / new["tokens"] - 1) for old, new in zip(rows["old"], rows["new"], strict=True))
        bars[f"{size}: difference of the tokens"] = bar(DRIFT, round(drift, 4))
    return {**judged, "bars": bars}


if __name__ == "__main__":
    main()
