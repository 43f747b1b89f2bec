"""``populora train [PRESET|FILE.toml] [--field value …] [--out DIR] [--dry-run]``: start a run, or only check that it could."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Annotated

import tyro
from rich.console import Console

from populora.cli.arguments import QUIET, parse_settings
from populora.core.config import Config
from populora.core.config_check import check
from populora.core.errors import ConfigError
from populora.core.invocation import command, pasteable
from populora.core.output import OutputConsole
from populora.core.presets import DEFAULT, preset_names, read_preset, settings_file
from populora.runs.directory import RUNS, check_free, free_folder, reserved_folder
from populora.runs.display import Display, PlainDisplay
from populora.runs.summary import Summary
from populora.sandbox.runner import PYTHON


@dataclass(frozen=True)
class Train:
    """Co-evolve a population of teachers and students, or train the single-agent baseline.

    Settings come from a preset or a TOML file, then from the flags below; what the file leaves out has its default. Ctrl-C
    finishes the step, checkpoints, and prints how to resume.
    """

    config: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[PRESET|FILE.toml]")] = DEFAULT
    """A preset that ships, or a settings file of yours (`populora init` writes one)."""
    list: tyro.conf.FlagCreatePairsOff[Annotated[bool, QUIET]] = False
    """List the presets, with what they need and how long they take, and stop."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Run directory; by default `runs/` and the name of the settings file, numbered if that exists."""
    dry_run: bool = False
    """Check everything that needs neither weights nor a GPU, say what would run, and stop."""
    gpu: Annotated[str, tyro.conf.arg(metavar="NAME")] = ""
    """With `--dry-run`: the GPU whose memory is compared, such as `H100`."""
    gpus: Annotated[str, tyro.conf.arg(metavar="N[xNAME]")] = ""
    """With `--dry-run`: how many of them, also with the name, such as `8xH100`."""
    settings: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)


def main(arguments: Sequence[str]) -> int:
    """Start a run; returns 0, or 130 if it was stopped before its last step. Raises `PopuloraError`."""
    args = parse_settings(Train, arguments, "train")
    if args.list:
        sys.stdout.write(pasteable(preset_list(preset_names())))
        return 0
    name = settings_file(args.config).stem
    check(args.settings)
    if args.out:
        check_free(args.out)  # as training does, but before torch is loaded
    if args.dry_run:
        from populora.cli.dry_run import dry_run

        return dry_run(args.settings, args.out or free_folder(RUNS, name), args.gpu, args.gpus)
    if args.gpu or args.gpus:
        raise ConfigError("--gpu and --gpus name the hardware of a dry run: expected --dry-run with them. A run takes base.device.")

    from populora.training.loop import train

    with nullcontext(args.out) if args.out else reserved_folder(RUNS, name) as folder:
        return run_displayed(folder, args.settings, lambda display, stop: train(args.settings, folder, display, stop))


def preset_list(names: Sequence[str]) -> str:
    """Describe each preset in three lines: name and summary, hardware, time."""
    width = max(map(len, names)) + 2
    presets = [read_preset(name) for name in names]
    rows = [(preset.name, preset.summary, f"hardware: {preset.hardware}", f"time: {preset.time}") for preset in presets]
    return "".join(f"{name:<{width}}{summary}\n{'':<{width}}{hardware}\n{'':<{width}}{time}\n" for name, summary, hardware, time in rows)


def open_display(
    folder: Path,
    steps: int,
    history: Sequence[Mapping[str, float]] = (),
    stopping: Callable[[], bool] = lambda: False,
    console: Console | None = None,
    domains: tuple[str, ...] = (PYTHON,),
) -> Display:
    """Open a live table on a terminal that can draw blocks, else plain lines. ``history`` is the metrics log of a resumed run."""
    console = console or OutputConsole()
    if console.is_terminal and not console.is_dumb_terminal and console.encoding.lower().startswith("utf"):
        from populora.runs.live import LiveDisplay

        return LiveDisplay(folder, steps, history, stopping, console, domains)
    return PlainDisplay(folder, steps, stopping, console)


def run_displayed(
    folder: Path, config: Config, work: Callable[[Display, Callable[[], bool]], Summary], history: Sequence[Mapping[str, float]] = ()
) -> int:
    """Do ``work`` under a display; print how to continue if it was stopped. Returns the exit code."""
    resume = f"`{command('resume', folder)}`"
    try:
        with two_stage_interrupt() as stop, open_display(folder, config.steps, history, stop, domains=config.domains) as display:
            summary = work(display, stop)
    except KeyboardInterrupt:
        remedy = f"{resume} continues from the last checkpoint" if (folder / "config.json").exists() else "nothing was written yet"
        sys.stderr.write(f"populora: stopped at once; {remedy}\n")
        return 130
    if not summary.stopped:
        return 0
    sys.stderr.write(f"populora: stopped after step {summary.step} of {summary.steps}; {resume} continues from there\n")
    return 130


@contextmanager
def two_stage_interrupt() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a first SIGINT, or SIGTERM, has come. A second SIGINT raises ``KeyboardInterrupt``."""
    requested = threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if requested.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        requested.set()

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requested.is_set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
