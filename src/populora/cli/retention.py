"""``populora retention [PRESET|SETTINGS.toml] [--out DIR]``: which operators' children learn on; goes on where it stopped."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from populora.cli.arguments import QUIET, parse
from populora.cli.train import preset_list
from populora.core.config_file import from_mapping
from populora.core.errors import ConfigError, RunDirectoryError
from populora.core.files import disk_errors, json_bytes, read_json, write_file
from populora.core.invocation import pasteable
from populora.core.presets import RETENTION, preset_names, settings_file
from populora.runs.directory import CONFIG, FACTS, changed_versions, locked
from populora.runs.style import format_duration

if TYPE_CHECKING:
    from populora.evals.retention.settings import RetentionConfig


@dataclass(frozen=True)
class Retention:
    """Breed a child with every operator from parents at several steps of their training, train the children on, and say what each
    operator keeps. Ctrl-C stops at once; the same command goes on from the last checkpoint."""

    settings: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[PRESET|SETTINGS.toml]")] = RETENTION
    """A preset: `retention` (26 minutes on two cores), `retention_full` (the paper's grid, 2 hours); or a settings file of yours."""
    list: tyro.conf.FlagCreatePairsOff[Annotated[bool, QUIET]] = False
    """List the presets, with what they need and how long they take, and stop."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="DIR")] = Path("runs/retention")
    """Where parents, cells, results and figures go."""


def main(arguments: Sequence[str]) -> int:
    """Run or go on; returns 0. Raises `PopuloraError`."""
    chosen = parse(Retention, arguments, "retention")
    if chosen.list:
        sys.stdout.write(pasteable(preset_list(preset_names(retention=True))))
        return 0
    from populora.evals.retention.grid import run_grid  # loads torch
    from populora.evals.retention.report import write_report
    from populora.evals.retention.settings import check_settings, load_settings

    config = load_settings(settings_file(chosen.settings, retention=True))
    check_settings(config)
    with disk_errors(chosen.out, "create"):
        chosen.out.mkdir(parents=True, exist_ok=True)
    with locked(chosen.out):
        _claim(chosen.out, config)
        run_grid(config, chosen.out, _Progress())
        write_report(config, chosen.out)
    return 0


def _claim(out: Path, config: RetentionConfig) -> None:
    """The folder is new, or it holds this very experiment; settings that did not exist when it was begun have their defaults."""
    from populora.evals.retention.settings import RetentionConfig, plain

    file = out / CONFIG
    if not file.exists():
        write_file(file, json_bytes(plain(config)))
        return
    try:
        same = from_mapping(read_json(file), RetentionConfig) == config
    except ConfigError:
        same = False
    if not same:
        raise RunDirectoryError(f"'{out}' holds another experiment or a run: choose another folder with `--out DIR`")
    if (out / FACTS).exists() and (changed := changed_versions(out)):
        sys.stdout.write(f"begun with {'; '.join(changed)}\n")


class _Progress:
    """A line of text every ten seconds, and at the end of each part."""

    def __init__(self) -> None:
        self._started = self._said = time.monotonic()

    def __call__(self, title: str, done: int, steps: int, curve: Any) -> None:
        now = time.monotonic()
        if now - self._said < 10 and done < steps:
            return
        self._said = now
        sys.stdout.write(f"{format_duration(now - self._started)}  {title}: step {done} of {steps}\n")
        sys.stdout.flush()
