"""Measure what a step costs for each member and each trained token, from 1T+1S to 16T+16S on the tiny base, on one thread.

    python -m benchmarks.population_size [--rounds 8] [--sizes 1 2 4 8 16]        writes population_size.json; about ten minutes

Runs of equal settings but for their size make steps in turns, in one process; one step each is not counted. Seconds are wall time, and CPU
time with all processes below. Members write texts of unequal lengths, so a bar judges the seconds of a trained token: it is the median
ratio to those in the next smaller population, and 1.0 or less is met. Memory is not measured.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from benchmarks.measuring import bar, columns, machine, options, ratio, take_turns, timed, write_results

from populora.core.config import Config
from populora.core.config_file import load_config
from populora.core.presets import settings_file
from populora.training.loop import build_run
from populora.training.seed_buffer import fill_buffer
from populora.training.step import selfplay_step

Rows = Mapping[str, Sequence[Mapping[str, float]]]
"""Measurements of each round, by population."""


def main() -> None:
    parser = options(__doc__, Path(__file__).with_suffix(".json"), rounds=8)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="teachers, and as many students; rising")
    args = parser.parse_args()
    torch.set_num_threads(1)
    about = {"machine": machine("populora", "torch"), "rounds": args.rounds}
    with ExitStack() as stack:
        runs = {f"{size}T+{size}S": stack.enter_context(build_run(settings(size))) for size in args.sizes}
        for run in runs.values():
            fill_buffer(run)
            selfplay_step(run)
        rows = take_turns({name: lambda run=run: measure(run) for name, run in runs.items()}, args.rounds)
    write_results(args.out, {**about, "for each member": {name: columns(part) for name, part in rows.items()}, "bars": bars(rows)})


def settings(size: int) -> Config:
    """Return the tiny preset with ``size`` teachers and as many students, without evaluation."""
    config = load_config(settings_file("tiny"))
    population = replace(config.population, teachers=size, students=size)
    return replace(config, threads=1, population=population, evaluation=replace(config.evaluation, every=0))


def measure(run: Any) -> dict[str, float]:
    """Make a step. Returns seconds and trained tokens for each member, and milliseconds for each trained token."""
    record, wall, cpu = timed(lambda: selfplay_step(run))
    members, tokens = len(record.members), record.tokens["update"]
    by_token = {"wall, ms a token": 1000 * wall / tokens, "cpu, ms a token": 1000 * cpu / tokens}
    return {"wall": wall / members, "cpu": cpu / members, "trained tokens": tokens / members, **by_token}


def bars(rows: Rows) -> dict[str, Any]:
    """Return a bar for each population and the next smaller one, in wall and in CPU time of a trained token."""
    judged: dict[str, Any] = {}
    for smaller, larger in pairwise(rows):
        for clock in ("wall", "cpu"):
            seconds = {name: [row[f"{clock}, ms a token"] for row in rows[name]] for name in (smaller, larger)}
            judged[f"{larger} / {smaller}, {clock}"] = bar(1.0, ratio(seconds, larger, smaller)["median"])
    return judged


if __name__ == "__main__":
    main()
