"""The first-run experiment: baseline (and two controls of it), 1T+1S, 2T+2S and 4T+4S on the tiny base, several seeds, equal settings.

    python benchmarks/first_run/run.py           trains what is not measured yet, resumes what stopped; a file a run in measured/
    python benchmarks/first_run/summarise.py     writes results.json, table.md and the curves from those files

Runs are made one after the other by the product's own command; the order puts the arms that are compared first.
A run that stands in measured/ is not made again: to check it, delete its file, or measure into another folder.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from measures import measure

from populora.core.files import write_file
from populora.runs.directory import read_config
from populora.runs.metrics_log import read_log

HERE = Path(__file__).parent
CONFIGS = HERE.parent.parent / "configs"
RUNS = [
    *((arm, seed) for seed in (0, 1, 2) for arm in ("baseline", "1t1s", "baseline_equal")),
    ("2t2s", 0), ("baseline_b128", 0),
    # What the comparison rests on: the number of seeds was fixed when three of each were known and the others were not.
    *(("4t4s", seed) for seed in range(8)),
    *((arm, seed) for seed in (3, 4, 5) for arm in ("baseline", "baseline_equal")),
    # Decided when the first of these and four of 4T+4S were known: is it the population, or its size?
    *(("2t2s", seed) for seed in range(1, 6)),
]  # fmt: skip
ARMS = {
    "baseline": ["tiny_baseline.toml"],
    # Control: proposing has half of the agent's loss, not its seventh by tokens.
    "baseline_equal": ["tiny_baseline.toml", "--learner.role-weights", "equal"],
    # Control: one proposer's programs replace a buffer of 128 as fast as those of four teachers replace one of 512.
    "baseline_b128": ["tiny_baseline.toml", "--selfplay.buffer-size", "128"],
    "1t1s": ["tiny_1t1s.toml"],
    "2t2s": ["tiny.toml"],
    "4t4s": ["tiny_4t4s.toml"],
}
"""Configuration and further settings of each arm."""
ONE_THREAD = ["--threads", "1"]
"""So that two arms can run beside each other, and to the same bytes on any machine of a kind."""
LEARNING_RATE = ["--learner.learning-rate", "3e-3"]
"""The presets' own when these arms were measured; since then it is twice that, so that their 32 steps show more."""
EVALUATION = ["--evaluation.every", "25", "--evaluation.problems-per-type", "216"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--root", type=Path, default=Path("runs/first_run"))
    parser.add_argument("--measured", type=Path, default=HERE / "measured", help="where the file of each finished run goes")
    parser.add_argument("--only", nargs="*", default=sorted(ARMS), choices=sorted(ARMS), help="arms to run")
    parser.add_argument("settings", nargs="*", help="after `--`: further settings of the new runs, such as --selfplay.prompts-per-type 4")
    chosen = parser.parse_args()
    for arm, seed in RUNS:
        folder, file = chosen.root / f"{arm}-{seed}", chosen.measured / f"{arm}-{seed}.json"
        if arm not in chosen.only:
            continue
        if file.exists():
            print(f"{file} is there: not made again")
            continue
        if not finished(folder):
            subprocess.run(command(folder, arm, seed, chosen.steps, chosen.settings), check=True)
        chosen.measured.mkdir(exist_ok=True)
        write_file(file, json.dumps(measure(folder), allow_nan=False).encode() + b"\n")


def finished(folder: Path) -> bool:
    return (folder / "config.json").exists() and len(read_log(folder)) == read_config(folder).steps


def command(folder: Path, arm: str, seed: int, steps: int, settings: list[str]) -> list[str]:
    """Start a run, or go on with it. A folder with another number of steps is refused."""
    populora = [sys.executable, "-m", "populora.cli.main"]
    if (folder / "config.json").exists():
        if (found := read_config(folder).steps) != steps:
            raise SystemExit(f"{folder} is a run of {found} steps, not {steps}: choose another --root, or --steps {found}")
        return [*populora, "resume", str(folder)]
    config, *own = ARMS[arm]
    chosen = ["--out", str(folder), "--seed", str(seed), "--steps", str(steps), *ONE_THREAD, *LEARNING_RATE, *EVALUATION, *own, *settings]
    return [*populora, "train", str(CONFIGS / config), *chosen]


if __name__ == "__main__":
    main()
