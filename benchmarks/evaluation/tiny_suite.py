"""`populora evaluate RUN --suite tiny --members all` for 8 members: seconds of the whole command, and of generation and grading.

    python benchmarks/evaluation/tiny_suite.py [--run RUN] [--steps 10] [--rounds 3]      writes tiny_suite.json; eight minutes

Without --run, a run of `configs/tiny_4t4s.toml` of so many steps is made first: its members have learned for that long, so that their
adapters and their answers differ. Members answer together, and the verdicts on equal answers are made once: the more they differ, the
longer it takes. ``generation`` ends with the last completion, ``grading`` with the last verdict; starting and loading are the former's,
and the table makes up the rest. A command of its own is timed in each round, which begins from nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grader import POPULORA, at_most, columns, machine, spent

from populora.evals.folder import read_evaluation

HERE = Path(__file__).parent
CONFIG = HERE.parents[1] / "configs" / "tiny_4t4s.toml"
BAR_SECONDS = 90.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="an existing run of the tiny base")
    parser.add_argument("--steps", type=int, default=10, help="of the run that is made")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "tiny_suite.json")
    chosen = parser.parse_args()
    found: dict[str, Any] = {"machine": machine()}
    with tempfile.TemporaryDirectory() as temporary:
        run = chosen.run or Path(temporary) / "run"
        if not chosen.run:
            subprocess.run([*POPULORA, "train", str(CONFIG), "--steps", str(chosen.steps), "--out", str(run)], check=True)
        folders = [Path(temporary) / f"evaluation_{number}" for number in range(chosen.rounds)]
        rounds = [evaluated(["evaluate", str(run), "--suite", "tiny", "--members", "all"], folder) for folder in folders]
        found |= {"steps": steps(run), **scores(folders[-1]), "distinct_completions": distinct(folders[-1])}
    found |= {"rounds": len(rounds), "seconds": columns(rounds)}
    found["bars"] = bars(found)
    chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def evaluated(command: Sequence[str], folder: Path) -> dict[str, float]:
    """Seconds of the command by part."""
    started = time.time()
    whole = spent([*POPULORA, *command, "--out", str(folder)], folder.with_suffix(".log"))
    generated, graded = (last_change(folder / name) - started for name in ("generations", "verdicts"))
    others = {name: value for name, value in whole.items() if name not in ("process", "verdicts")}
    parts = {"generation": generated, "grading": graded - generated, "table": whole["process"] - graded}
    return {"whole": whole["process"], **{name: round(seconds, 2) for name, seconds in parts.items()}, **others}


def last_change(folder: Path) -> float:
    """When the last file below was written to, in seconds since 1970."""
    return max(file.stat().st_mtime for file in folder.rglob("*.jsonl"))


def scores(folder: Path) -> dict[str, Any]:
    """Per cent right of each member, and the number of items."""
    found = read_evaluation(folder).scores
    return {"items": found[0].graded, "members": len(found), "right_percent": {one.model: round(one.rate, 2) for one in found}}


def distinct(folder: Path) -> int:
    """How many different pairs of an item and a completion there are over all members."""
    lines = (json.loads(line) for file in folder.glob("generations/*/*.jsonl") for line in file.read_text().splitlines())
    return len({(one["item_id"], one["completion"]) for one in lines})


def steps(run: Path) -> int:
    return len((run / "metrics.jsonl").read_text().splitlines())


def bars(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    name = f"seconds for {found['members']} members on {found['machine']['cores']} cores"
    return {name: at_most(BAR_SECONDS, found["seconds"]["whole"]["median"])}


if __name__ == "__main__":
    main()
