"""``populora watch [RUN …]``: the report of a run that goes on, served on this machine alone, until Ctrl-C."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from populora.cli.arguments import parse
from populora.cli.report import study_of
from populora.core.errors import ConfigError
from populora.report.loading import RunData
from populora.runs.metrics_log import latest_run

PRIORITY = 10
"""Added to the process's niceness: the training that it watches goes first."""


@dataclass(frozen=True)
class Watch:
    """Serve the report of a run on 127.0.0.1 and follow the run. It reads only, and can be left open; Ctrl-C ends it."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN ...")] = ()
    """The run to follow, by default the newest under `runs/`, and others to show beside it."""
    baseline: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN ...")] = ()
    """Runs to draw in black and to compare with."""
    port: Annotated[int, tyro.conf.arg(metavar="N")] = 8765
    """Where it listens on this machine; 0 for any free port."""
    smooth: Annotated[int, tyro.conf.arg(metavar="N")] = 5
    """Steps of the trailing means in the figures."""


def main(arguments: Sequence[str]) -> int:
    """Serve until Ctrl-C; returns 0. Raises `PopuloraError`."""
    chosen = parse(Watch, arguments, "watch")
    runs = chosen.runs or (latest_run(),)
    study_of(runs, chosen.baseline, smooth=chosen.smooth)
    if not 0 <= chosen.port <= 65535:
        raise ConfigError(f"--port is {chosen.port}: expected 0 to 65535")
    from populora.report.catalogue import figures_of
    from populora.report.page import page
    from populora.report.server import Followed, serving

    def make(version: str) -> str:
        study = study_of(runs, chosen.baseline, smooth=chosen.smooth)
        return page(study, figures_of(study), follows=version)

    os.nice(PRIORITY)
    sys.stderr.write(f"populora watch: reading {runs[0]} …\n")
    followed = Followed(runs[0], RunData(runs[0]).settings.get("steps", "?"), make)
    with serving(followed, chosen.port) as address:
        sys.stdout.write(f"{address}  follows {runs[0]}; Ctrl-C ends it\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            sys.stderr.write("populora watch: ended\n")
    return 0
