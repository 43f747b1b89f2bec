"""Compare a run on Ray's actors with the same run in one process: seconds of a step, share of publishing, cost of killed processes.

    python -m benchmarks.cluster [--steps 8] [--kills 12]     writes cluster.json; about six minutes on two cores

Needs Ray. The run is `configs/tiny.toml` with overlap "off": in one process, on two engines, two
learners and two verifiers, and on these again while processes of all three kinds are killed at random moments. On two cores the actors
share what one process has to itself: this measures the cost of separate processes, not the gain of more machines.
"""

import logging
import re
import statistics
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.measuring import ROOT, machine, options, write_results

from populora.core.config import ClusterConfig, Config
from populora.core.config_file import load_config
from populora.runs.metrics_log import TIMINGS, read_log
from populora.training.loop import train

sys.path[:0] = [str(ROOT / "tests/engine/cluster"), str(ROOT / "tests/e2e")]

from actor_processes import KINDS, actors, kill  # noqa: E402
from small_run import Silent, contents  # noqa: E402

APART = ClusterConfig(learners=2, engines=2, verifiers=2)
GOAL_PUBLISH, GOAL_RECOVERY = 0.02, 30.0


def main() -> None:
    parser = options(__doc__, Path(__file__).with_suffix(".json"))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--kills", type=int, default=12)
    args = parser.parse_args()
    about = {"machine": machine("torch", "ray"), "steps": args.steps}
    with tempfile.TemporaryDirectory() as folder:
        results = measure(settings(args.steps), Path(folder), args.kills)
    write_results(args.out, {**about, **results})


def settings(steps: int) -> Config:
    config = load_config(ROOT / "configs" / "tiny.toml")
    return replace(config, steps=steps, threads=1, selfplay=replace(config.selfplay, overlap="off"))


def measure(config: Config, folder: Path, kills: int) -> dict[str, Any]:
    """Train ``config`` three times."""
    apart = replace(config, cluster=APART)
    train(config, folder / "alone", Silent())
    train(apart, folder / "apart", Silent())
    recoveries = killed_run(apart, folder / "killed", kills)
    seconds = {name: phases(folder / name) for name in ("alone", "apart")}
    share = seconds["apart"]["publish"] / seconds["apart"]["step"]
    return {
        "seconds_of_a_step": seconds,
        "publish_share": round(share, 5),
        "publish_goal_met": share < GOAL_PUBLISH,
        "kills": recoveries,
        "recovery_goal_met": max(recoveries["seconds"], default=0.0) < GOAL_RECOVERY,
        "bytes_as_without_kills": contents(folder / "killed") == contents(folder / "apart"),
    }


def phases(folder: Path) -> dict[str, float]:
    """Return the median seconds of a run's steps by phase, without the first."""
    lines = read_log(folder, TIMINGS)[1:]
    phases = [name for name in lines[-1] if name.startswith("seconds/")]
    return {name.removeprefix("seconds/"): round(statistics.median(line.get(name, 0.0) for line in lines), 4) for name in phases}


def killed_run(config: Config, folder: Path, kills: int) -> dict[str, Any]:
    """Kill processes of each kind in turn, 1 to 5 seconds apart; return how long each recovery took."""
    log, ended, chance, killed = Recoveries(), threading.Event(), np.random.default_rng(0), []

    def strike() -> None:
        while len(killed) < kills and not ended.wait(chance.uniform(1.0, 5.0)):
            kind = KINDS[len(killed) % len(KINDS)]
            victims = [pid for actor, pid in actors() if actor == kind]
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
    return {"killed": len(killed), "recovered": len(log.seconds), "seconds": log.seconds}


class Recoveries(logging.Handler):
    """Collects the seconds of replacements from the warnings of a run."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        if match := re.match(r"\w+ \d+ works again after ([0-9.]+) s", record.getMessage()):
            self.seconds.append(float(match[1]))


if __name__ == "__main__":
    main()
