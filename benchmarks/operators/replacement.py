"""What breeding costs a run: seconds of replacing a quarter of eight members, over the seconds of the same step.

    python benchmarks/operators/replacement.py [--steps 13]      writes replacement.json; five minutes on two cores

A run of `configs/tiny_4t4s.toml` that evolves after every third step instead of every tenth, and not after the last. ``evolve`` is the
whole phase of the run: choosing who goes, breeding, the children's measures, their places in the bank, the optimiser and the league.
Writing what `populora replay` needs (`evolution.keep_parents`) belongs to phase ``write``, which a run books with its next step: what the
steps that bred took longer to write than the others is counted too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "speed"))

from machine import machine  # noqa: E402

CONFIG = HERE.parents[1] / "configs" / "tiny_4t4s.toml"
EVERY, GOAL_PERCENT = 3, 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=13)
    parser.add_argument("--out", type=Path, default=HERE / "replacement.json")
    chosen = parser.parse_args()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [
            "populora.cli.main",
            "train",
            str(CONFIG),
            "--steps",
            str(chosen.steps),
            "--evolution.every",
            str(EVERY),
            "--out",
            str(run),
        ]
        subprocess.run([sys.executable, "-m", *command], check=True)
        found = shares(lines(run / "timings.jsonl"), lines(run / "metrics.jsonl"))
    found = {"machine": machine(), "config": CONFIG.name, **found}
    chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def shares(timings: Sequence[Mapping[str, float]], metrics: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """What each replacement took of its step, from a run's logs; the last step breeds nobody."""
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


def lines(log: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


if __name__ == "__main__":
    main()
