"""``populora watch [RUN …]``: serve the report of a run in training on this machine, until Ctrl-C."""

import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from populora.cli.arguments import parse
from populora.cli.report import read_study, runs_or_latest
from populora.core.errors import ConfigError


@dataclass(frozen=True)
class Watch:
    """Serve the report of a run on 127.0.0.1 and follow the run. It reads only, and can be left open; Ctrl-C ends it."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN ...")] = ()
    """The run to follow, by default the newest under `runs/`, and other runs to show with it."""
    baseline: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN ...")] = ()
    """Runs to draw in black and to compare with."""
    port: Annotated[int, tyro.conf.arg(metavar="N")] = 8765
    """The port of this machine; 0 for any free one."""
    smooth: Annotated[int, tyro.conf.arg(metavar="N")] = 5
    """Steps of the trailing means in the figures."""


def main(arguments: Sequence[str]) -> int:
    """Serve until Ctrl-C; returns 0. Raises `PopuloraError`."""
    args = parse(Watch, arguments, "watch")
    runs = runs_or_latest(args.runs, args.baseline)
    read_study(runs, args.baseline, smooth=args.smooth)
    if not 0 <= args.port <= 65535:
        raise ConfigError(f"--port is {args.port}: expected 0 to 65535")
    from populora.report.figures import make_figures
    from populora.report.page import page
    from populora.report.server import LivePage, serve_page

    def build(version: str) -> str:
        study = read_study(runs, args.baseline, smooth=args.smooth)
        return page(study, make_figures(study), version)

    os.nice(10)  # the training goes first
    sys.stderr.write(f"populora watch: reading {runs[0]} …\n")
    with serve_page(LivePage(runs[0], build), args.port) as address:
        sys.stdout.write(f"{address}  follows {runs[0]}; Ctrl-C ends it\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            sys.stderr.write("populora watch: ended\n")
    return 0
