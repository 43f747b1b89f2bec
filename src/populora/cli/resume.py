"""``populora resume [RUN]``: continue from the newest checkpoint, bit-identical to an undisturbed run."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from populora.cli.arguments import QUIET, parse
from populora.cli.train import run_displayed
from populora.core.config import ClusterConfig
from populora.core.config_check import check
from populora.runs.directory import read_config, with_more_steps
from populora.runs.metrics_log import latest_run, read_log


@dataclass(frozen=True)
class Resume:
    """Go on with a stopped or killed run, with the settings that it began with. On how many processes it runs may change, and it may
    become longer."""

    run: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="[RUN]")] = None
    """Run directory, such as `runs/tiny`; by default the newest under `runs/`."""
    steps: Annotated[int | None, tyro.conf.arg(metavar="N"), QUIET] = None
    """The number of steps in all; by default that which the run began with. It can only be raised."""
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    """Processes of the resumed run; by default those that it began with. Another number of processes changes results by the order
    of additions."""


def main(arguments: Sequence[str]) -> int:
    """Go on with a run; returns 0, or 130 if it was stopped again. Raises `PopuloraError`."""
    folder = parse(Resume, arguments, "resume").run or latest_run()
    config = read_config(folder)
    args = parse(Resume, arguments, "resume", default=Resume(folder, cluster=config.cluster))
    config = with_more_steps(replace(config, cluster=args.cluster), args.steps)
    check(config)

    from populora.training.loop import resume

    return run_displayed(folder, config, lambda display, stop: resume(folder, display, stop, args.cluster, args.steps), read_log(folder))
