"""Measure the share of a step that replacing a quarter of eight members takes.

    python -m benchmarks.operators.replacement [--steps 13]      writes replacement.json; five minutes on two cores

The run is `configs/tiny_4t4s.toml`, evolving after every third step. ``evolve`` is the whole phase: culling, breeding, measures, places in
the bank, optimiser and ratings. What `populora replay` needs is written in phase ``write``, which a run books with its next step: the
difference to the writes of other steps counts too.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import POPULORA, ROOT, machine, options, write_results

from populora.runs.metrics_log import TIMINGS, read_log

CONFIG = ROOT / "configs" / "tiny_4t4s.toml"
EVERY, GOAL_PERCENT = "3", 1.0


def main() -> None:
    parser = options(__doc__, Path(__file__).with_suffix(".json"))
    parser.add_argument("--steps", type=int, default=13)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        settings = ("--steps", str(args.steps), "--evolution.every", EVERY, "--out", str(run))
        subprocess.run([*POPULORA, "train", str(CONFIG), *settings], check=True)
        results = shares(read_log(run, TIMINGS), read_log(run))
    write_results(args.out, {"machine": machine("torch"), "config": CONFIG.name, **results})


def shares(timings: Sequence[Mapping[str, float]], metrics: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the share of each replacement, from a run's logs; the last step breeds no children."""
    written = [timing["seconds/write"] for timing in timings[1:]]
    bred = [step for step, metric in enumerate(metrics[:-1]) if metric["evolution/children"]]
    usual = statistics.median(seconds for step, seconds in enumerate(written) if step not in bred)
    rows = [
        {
            "children": metrics[step]["evolution/children"],
            "evolve_seconds": timings[step]["seconds/evolve"],
            "extra_write_seconds": written[step] - usual,
            "step_seconds": timings[step]["seconds/step"],
        }
        for step in bred
    ]
    percent = [100 * (row["evolve_seconds"] + max(0.0, row["extra_write_seconds"])) / row["step_seconds"] for row in rows]
    return {
        "steps": len(timings),
        "replacements": [{name: round(value, 4) for name, value in row.items()} for row in rows],
        "percent_of_step": {"median": round(statistics.median(percent), 3), "largest": round(max(percent), 3)},
        "goal_percent": GOAL_PERCENT,
        "met": statistics.median(percent) < GOAL_PERCENT,
    }


if __name__ == "__main__":
    main()
