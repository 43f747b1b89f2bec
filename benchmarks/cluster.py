"""A run on Ray's actors beside the same run in one process: seconds of a step, publishing's share of it, and what a killed process costs.

    python benchmarks/cluster.py [--steps 8] [--kills 12]     writes cluster.json; about six minutes on two cores

Needs Ray (`pip install 'populora[cluster]'`). The run is `configs/tiny.toml` with overlap "off": alone, on two engines, two learners and
two verifiers, and on these again while processes of all three kinds die by SIGKILL at moments that chance chooses. On two cores the
actors share what one process has to itself, so this measures what being apart costs, not what more machines bring.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import statistics
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "speed"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/engine/cluster"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/e2e"))

import numpy as np
from actor_processes import KINDS, actors, kill
from machine import machine
from small_run import Silent, contents

from populora.core.config import ClusterConfig, Config
from populora.core.config_file import load_config
from populora.training.loop import train

APART = ClusterConfig(learners=2, engines=2, verifiers=2)
GOAL_PUBLISH, GOAL_RECOVERY = 0.02, 30.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {"machine": machine(), "steps": chosen.steps, **measure(settings(chosen.steps), Path(folder), chosen.kills)}
    chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    sys.stdout.write(json.dumps(found, indent=1) + "\n")


def settings(steps: int) -> Config:
    config = load_config(Path(__file__).parents[1] / "configs/tiny.toml")
    return replace(config, steps=steps, threads=1, selfplay=replace(config.selfplay, overlap="off"))


def measure(config: Config, folder: Path, kills: int) -> dict[str, Any]:
    """Three runs of ``config``."""
    apart = replace(config, cluster=APART)
    train(config, folder / "alone", Silent())
    train(apart, folder / "apart", Silent())
    recoveries = killed_run(apart, folder / "killed", kills)
    found = {name: phases(folder / name) for name in ("alone", "apart")}
    share = found["apart"]["publish"] / found["apart"]["step"]
    return {
        "seconds_of_a_step": found,
        "publish_share": round(share, 5),
        "publish_goal_met": share < GOAL_PUBLISH,
        "kills": recoveries,
        "recovery_goal_met": max(recoveries["seconds"]) < GOAL_RECOVERY,
        "bytes_as_without_kills": contents(folder / "killed") == contents(folder / "apart"),
    }


def phases(folder: Path) -> dict[str, float]:
    """Median seconds of the steps of a run by phase, but for the first."""
    lines = [json.loads(line) for line in (folder / "timings.jsonl").read_text().splitlines()][1:]
    phases = [name for name in lines[-1] if name.startswith("seconds/")]
    return {name.removeprefix("seconds/"): round(statistics.median(line.get(name, 0.0) for line in lines), 4) for name in phases}


def killed_run(config: Config, folder: Path, kills: int) -> dict[str, Any]:
    """Kill processes of each kind by turns, 1 to 5 seconds apart, while the run goes on; how long each recovery took, by kind."""
    log, ended, chance, killed = Recoveries(), threading.Event(), np.random.default_rng(0), []

    def strike() -> None:
        while len(killed) < kills and not ended.wait(chance.uniform(1.0, 5.0)):
            kind = KINDS[len(killed) % len(KINDS)]
            victims = [pid for found, pid in actors() if found == kind]
            if len(victims) == 2 and kill(victims[int(chance.integers(2))]):
                killed.append(kind)

    logging.getLogger("populora").addHandler(log)
    striker = threading.Thread(target=strike)
    striker.start()
    try:
        train(config, folder, Silent())
    finally:
        ended.set()
        striker.join()
    return {"killed": len(killed), "recovered": len(log.seconds), "longest": log.longest, "seconds": log.seconds}


class Recoveries(logging.Handler):
    """The seconds that replacements took, from the warnings that a run gives of them."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self.longest: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if found := re.match(r"(\w+) \d+ works again after ([0-9.]+) s", record.getMessage()):
            kind, seconds = found[1], float(found[2])
            self.seconds.append(seconds)
            self.longest[kind] = max(seconds, self.longest.get(kind, 0.0))


if __name__ == "__main__":
    main()
