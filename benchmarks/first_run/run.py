"""Train the arms of the first-run experiment on the tiny base: baseline, two controls of it, 1T+1S, 2T+2S and 4T+4S, several seeds.

    python -m benchmarks.first_run.run           trains what is not measured yet, resumes what stopped; a file a run in measured/
    python -m benchmarks.first_run.summarise     writes results.json, table.md and the curves from those files; --measured names the folder

Runs are made one after the other by `populora train`, the arms that are compared first. A run with a file in measured/ is not made again:
to check it, measure into another folder. Today's settings have other names and defaults, so new runs are compared among themselves.
"""

import subprocess
from pathlib import Path

from benchmarks.first_run.measures import measure, write_measured
from benchmarks.measuring import POPULORA, ROOT, options

from populora.runs.directory import read_config
from populora.runs.metrics_log import read_log

RUNS = [
    *((arm, seed) for seed in (0, 1, 2) for arm in ("baseline", "1t1s", "baseline_equal")),
    ("2t2s", 0), ("baseline_b128", 0),
    # Seeds of the comparison. Their number was fixed when three of each were known and the others were not.
    *(("4t4s", seed) for seed in range(8)),
    *((arm, seed) for seed in (3, 4, 5) for arm in ("baseline", "baseline_equal")),
    # Decided when the first of these and four of 4T+4S were known: is it the population, or its size?
    *(("2t2s", seed) for seed in range(1, 5)),
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
"""Lets two arms run at the same time, with bit-identical results on machines of one kind."""
LEARNING_RATE = ["--learner.learning-rate", "3e-3"]
"""The presets' own when these arms were measured; since then it is twice that, so that their 32 steps show more."""
RULES = [
    "--learner.centring", "batch", "--league.unsolved", "teacher",
    "--evolution.min-basis-cosine", "-1", "--evolution.broken-valid-rate", "0",
]  # fmt: skip
"""The presets' own when these arms were measured."""
EVALUATION = ["--evaluation.every", "25", "--evaluation.problems-per-type", "216"]


def main() -> None:
    parser = options(__doc__, Path(__file__).with_name("measured"))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--root", type=Path, default=Path("runs/first_run"))
    parser.add_argument("--only", nargs="*", default=sorted(ARMS), choices=sorted(ARMS), help="arms to run")
    parser.add_argument("settings", nargs="*", help="after `--`: further settings of the new runs, such as --selfplay.prompts-per-type 4")
    args = parser.parse_args()
    for arm, seed in RUNS:
        folder, file = args.root / f"{arm}-{seed}", args.out / f"{arm}-{seed}.parquet"
        if arm not in args.only or file.exists():
            continue
        if not finished(folder):
            subprocess.run(command(folder, arm, seed, args.steps, args.settings), check=True)
        args.out.mkdir(exist_ok=True)
        write_measured(file, measure(folder))


def finished(folder: Path) -> bool:
    return (folder / "config.json").exists() and len(read_log(folder)) == read_config(folder).steps


def command(folder: Path, arm: str, seed: int, steps: int, settings: list[str]) -> list[str]:
    """Start a run, or go on with it. A folder with another number of steps is refused."""
    if (folder / "config.json").exists():
        if (recorded := read_config(folder).steps) != steps:
            raise SystemExit(f"{folder} is a run of {recorded} steps, not {steps}: choose another --root, or --steps {recorded}")
        return [*POPULORA, "resume", str(folder)]
    config, *options = ARMS[arm]
    flags = {"--out": folder, "--seed": seed, "--steps": steps}
    chosen = [str(word) for flag in flags.items() for word in flag] + [
        *ONE_THREAD,
        *LEARNING_RATE,
        *RULES,
        *EVALUATION,
        *options,
        *settings,
    ]
    return [*POPULORA, "train", str(ROOT / "configs" / config), *chosen]


if __name__ == "__main__":
    main()
