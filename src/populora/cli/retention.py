"""``populora retention [PRESET|SETTINGS.toml] [--out DIR]``: measure which operators' children learn on. The same command resumes."""

import math
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from populora.cli.arguments import QUIET, parse
from populora.cli.progress import counting
from populora.cli.train import preset_list
from populora.core.config_file import from_mapping, to_mapping
from populora.core.errors import ConfigError, RunDirectoryError
from populora.core.files import json_bytes, make_folder, read_json, write_file
from populora.core.invocation import pasteable
from populora.core.presets import RETENTION, preset_names, settings_file
from populora.evals.retention.grid import parents_file, read_cells, run_grid
from populora.evals.retention.recovery_curves import draw_figures
from populora.evals.retention.settings import RetentionConfig, load_settings
from populora.evals.retention.verdicts import cell_measures, summary, table
from populora.runs.directory import CONFIG, FACTS, changed_versions, locked


@dataclass(frozen=True)
class Retention:
    """Breed a child with every operator from parents at several steps of their training, train the children on, and say what each
    operator keeps. Ctrl-C stops at once; the same command continues from the last checkpoint."""

    settings: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[PRESET|SETTINGS.toml]")] = RETENTION
    """A preset: `retention` (28 minutes on two cores), `retention_full` (the paper's grid, 2 hours); or a settings file of yours."""
    list: tyro.conf.FlagCreatePairsOff[Annotated[bool, QUIET]] = False
    """List the presets, with what they need and how long they take, and stop."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="DIR")] = Path("runs/retention")
    """Where parents, cells, results and figures go."""


def main(arguments: Sequence[str]) -> int:
    """Run or resume; returns 0. Raises `PopuloraError`."""
    args = parse(Retention, arguments, "retention")
    if args.list:
        sys.stdout.write(pasteable(preset_list(preset_names(retention=True))))
        return 0
    config = load_settings(settings_file(args.settings, retention=True))
    make_folder(args.out)
    with locked(args.out):
        _claim(args.out, config)
        with counting("retention") as count:
            run_grid(config, args.out, lambda title, done, steps: count(done, steps, title))
        _write_results(args.out, config)
    return 0


def _claim(out: Path, config: RetentionConfig) -> None:
    """Record the settings in a new folder. Raises `RunDirectoryError` for a folder with others; absent ones have their defaults."""
    if not (out / CONFIG).exists():
        write_file(out / CONFIG, json_bytes(to_mapping(config)))
    try:
        recorded = from_mapping(read_json(out / CONFIG), type(config))
    except ConfigError:
        recorded = None
    if recorded != config:
        raise RunDirectoryError(f"'{out}' holds another experiment or a run: choose another folder with `--out DIR`")
    if (out / FACTS).exists() and (changed := changed_versions(out)):
        sys.stdout.write(f"begun with {'; '.join(changed)}\n")


def _write_results(out: Path, config: RetentionConfig) -> None:
    """Write ``results.json``, ``table.md`` and the figures, and print the table. Raises `RunDirectoryError`."""
    cells = read_cells(config, out)
    measures = [item for cell in cells for item in cell_measures(config, cell)]
    rows = summary(config, measures, config.repeated)
    parents = [read_json(parents_file(out, seed)) for seed in config.seeds]
    results = {
        "settings": to_mapping(config),
        "began_with": read_json(out / FACTS),
        "machine": {"cores": os.cpu_count(), "machine": platform.machine()},
        "seconds": {"parents": [parent["seconds"] for parent in parents], "cells": [cell["seconds"] for cell in cells]},
        "cells": [{name: value for name, value in cell.items() if name not in ("initial", "curve")} for cell in cells],
        "summary": [_finite(row) for row in rows],
        "children": [asdict(item) for item in measures],
    }
    write_file(out / "results.json", json_bytes(results))
    write_file(out / "table.md", table(config, rows).encode())
    sys.stdout.write(table(config, rows))
    for file in draw_figures(config, out, cells):
        sys.stdout.write(f"wrote {file}\n")


def _finite(row: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the infinite ends of one seed's intervals, which JSON does not have, by null."""
    return {
        key: [end if math.isfinite(end) else None for end in value] if isinstance(value, tuple) else value for key, value in row.items()
    }
