"""``populora train [CONFIG.toml] [--field value …] [--out DIR]``: start a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from populora.commands.arguments import parse
from populora.commands.interrupt import StopRequest, two_stage_interrupt
from populora.config import Config
from populora.config_check import check
from populora.config_file import field_names, load_config, unknown_setting
from populora.errors import ConfigError
from populora.runlog.directory import check_free, free_folder
from populora.runlog.display import OpenDisplay, open_display
from populora.runlog.summary import Summary


@dataclass(frozen=True)
class Train:
    """Co-evolve a population of teachers and students, or train the single-agent baseline.

    Settings come from the paper's defaults, then the TOML file, then the flags below. Ctrl-C finishes the step,
    checkpoints, and says how to resume.
    """

    config: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="[CONFIG.toml]")] = None
    """Settings file; `configs/` has those that ship."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Run directory; by default `runs/` and the name of the settings file, numbered if that exists."""
    settings: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)


def main(arguments: Sequence[str]) -> int:
    """Start a run; returns 0, or 130 if it was stopped before its last step. Raises `PopuloraError`."""
    chosen = parse_train(arguments)
    folder = chosen.out or free_folder(Path("runs"), chosen.config.stem if chosen.config else "default")
    check(chosen.settings)
    check_free(folder, chosen.settings)

    def work(display: OpenDisplay, stop: StopRequest) -> Summary:
        from populora.training import train

        return train(chosen.settings, folder, display, stop)

    with two_stage_interrupt() as stop:
        return run_displayed(folder, open_display(folder, chosen.settings.steps, stopping=stop), stop, work)


def parse_train(arguments: Sequence[str]) -> Train:
    """Flags over the values of the TOML file they are given with. Raises `ConfigError`."""
    _check_names(arguments)
    first = parse(Train, arguments, "train")
    if not first.config:
        return first
    loaded = replace(first, settings=load_config(first.config))
    return parse(Train, arguments, "train", default=loaded)


def _check_names(arguments: Sequence[str]) -> None:
    known = {*field_names(), "out", "help"}
    for argument in arguments:
        name = argument.removeprefix("--").split("=")[0].replace("-", "_")
        if argument.startswith("--") and name.replace(".no_", ".") not in known:
            raise ConfigError(unknown_setting(name, field_names()))


def run_displayed(folder: Path, display: OpenDisplay, stop: StopRequest, work: Callable[[OpenDisplay, StopRequest], Summary]) -> int:
    """Do ``work`` under a display; say how to go on if it was stopped. Returns the exit code."""
    resume = f"`populora resume {folder}`"
    try:
        with display:
            summary = work(display, stop)
    except KeyboardInterrupt:
        begun = f"{resume} goes on from the last checkpoint" if (folder / "config.json").exists() else "nothing was written yet"
        sys.stderr.write(f"populora: stopped at once; {begun}\n")
        return 130
    if not summary.stopped:
        return 0
    sys.stderr.write(f"populora: stopped after step {summary.step} of {summary.steps}; {resume} goes on from there\n")
    return 130
