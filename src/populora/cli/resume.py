"""``populora resume [RUN]``: continue from the newest checkpoint, bit-identical to an undisturbed run."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from populora.cli.arguments import parse
from populora.cli.train import run_displayed
from populora.core.config import ClusterConfig
from populora.core.config_check import check
from populora.runs.directory import changed_versions, read_config
from populora.runs.metrics_log import latest_run, read_log


@dataclass(frozen=True)
class Resume:
    """Go on with a stopped or killed run, with the settings that it began with. On how many processes it runs may change."""

    run: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="[RUN]")] = None
    """Run directory, such as `runs/tiny`; by default the newest under `runs/`."""
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    """Processes of the resumed run; by default those that it began with. Another number of processes changes results by the order
    of additions."""


def main(arguments: Sequence[str]) -> int:
    """Go on with a run; returns 0, or 130 if it was stopped again. Raises `PopuloraError`."""
    folder = parse(Resume, arguments, "resume").run or latest_run()
    config = read_config(folder)
    cluster = parse(Resume, arguments, "resume", default=Resume(folder, config.cluster)).cluster
    check(replace(config, cluster=cluster))
    for change in changed_versions(folder):
        sys.stderr.write(f"populora: {change}: the results may differ in the last bits from those of an undisturbed run\n")

    from populora.training.loop import resume

    return run_displayed(folder, config, lambda display, stop: resume(folder, display, stop, cluster), read_log(folder))
