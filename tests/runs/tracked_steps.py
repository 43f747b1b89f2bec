"""``python tracked_steps.py RUN TRACKER FIRST LAST closed|killed``: a part of a run, as its trackers see it.

In a process of its own: it is killed, and trackio has one folder a process.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from populora.core.config import Config
from populora.runs.loggers import open_loggers
from populora.runs.metrics_log import METRICS, TIMINGS

CONFIG = Config(seed=3)


def write_step(folder: Path, step: int) -> None:
    metrics = {"student/solve_rate/S1/code_o": step / 7, "teacher/rejected/out_of_resources": 2.0}
    for log, values in ((METRICS, metrics), (TIMINGS, {"seconds/step": 0.1 * step})):
        with (folder / log).open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")


def main(folder: Path, tracker: str, first: int, last: int, end: str) -> None:
    with open_loggers(folder, replace(CONFIG, track=(tracker,))) as follow:
        for step in range(first, last + 1):
            write_step(folder, step)
            follow()
        if end == "killed":
            os.kill(os.getpid(), 9)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
