"""``populora evaluate pairs [RUN]``: let every student attempt the problems of every teacher (`populora.evals.all_pairs`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from populora.cli.arguments import QUIET, parse
from populora.cli.evaluate_generate import say
from populora.core.errors import ConfigError
from populora.evals.text_table import print_table, write_tables
from populora.runs.directory import PAIRS
from populora.runs.metrics_log import latest_run


@dataclass(frozen=True)
class Pairs:
    """Let every student attempt the problems that every teacher proposes, and print the matrix of solve rates.

    In training a student meets one teacher a step. The report draws the matrices of a run, if there are some, as the paper does.
    """

    run: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="[RUN]")] = None
    """Run directory, such as `runs/tiny`; by default the newest under `runs/`."""
    step: Annotated[int | None, tyro.conf.arg(metavar="N"), QUIET] = None
    """Step of a checkpoint that the run has kept, by default the newest."""
    prompts: Annotated[int, tyro.conf.arg(metavar="N"), QUIET] = 0
    """Prompts of each type for a teacher, by default those of a step of the run."""


def main(arguments: Sequence[str]) -> int:
    """Print the matrix and write it into the run's folder `pairs`; returns 0. Raises `PopuloraError`."""
    args = parse(Pairs, arguments, "evaluate pairs")
    if args.prompts < 0:
        raise ConfigError(f"--prompts is {args.prompts}: expected a number of prompts, or 0 for the run's")
    folder = args.run or latest_run()

    from populora.evals.all_pairs import pair_tables, solve_rates

    rows = solve_rates(folder, args.step, args.prompts)
    if not rows:
        raise ConfigError(f"'{folder}': no teacher proposed a valid problem; give more --prompts")
    tables = pair_tables(rows)
    for table in tables:
        print_table(table)  # before a folder that cannot be written stops the command: the attempts may have taken hours
    files = write_tables(folder / PAIRS, f"step_{rows[0]['snapshot']:05}", tables, rows)
    say(f"written to {', '.join(map(str, files))}")
    return 0
