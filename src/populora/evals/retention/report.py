"""What the benchmark leaves for readers: ``results.json``, ``table.md`` and the figures."""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from populora.adapters.operators import get_operator
from populora.core.files import json_bytes, read_json, write_file
from populora.evals.retention.figures import draw_figures
from populora.evals.retention.grid import parents_file, read_cells
from populora.evals.retention.settings import CONTROLS, RetentionConfig, plain
from populora.evals.retention.verdicts import Interval, everywhere, interval, summary
from populora.runs.directory import FACTS

COLUMNS = (
    "child", "task", "at birth, to the parent", "of the gain kept at birth", "updates until recovered", "area lost, points x steps",
    "at the end, to the parent", "verdict", "all steps, to the control", "all steps, to a fresh adapter",
)  # fmt: skip


def write_report(config: RetentionConfig, out: Path) -> None:
    """Write all of it from the finished cells and print the table. Raises `RunDirectoryError`."""
    cells = read_cells(config, out)
    rows = summary(config, cells, config.repeated)
    parents = [read_json(parents_file(out, seed)) for seed in config.seeds]
    content = {
        "settings": plain(config),
        "began_with": read_json(out / FACTS),
        "machine": {"cores": os.cpu_count(), "machine": platform.machine()},
        "seconds": {"parents": [one["seconds"] for one in parents], "cells": [cell["seconds"] for cell in cells]},
        "cells": [{name: value for name, value in cell.items() if name not in ("birth", "curve")} for cell in cells],
        "summary": [_finite(row) for row in rows],
        "children": everywhere(config, cells),
    }
    write_file(out / "results.json", json_bytes(content))
    text = table(config, rows, gains(config, cells))
    write_file(out / "table.md", text.encode())
    sys.stdout.write(text)
    for file in draw_figures(config, out, cells):
        sys.stdout.write(f"wrote {file}\n")


def gains(config: RetentionConfig, cells: Sequence[Mapping[str, Any]]) -> dict[str, Interval]:
    """By task: how far the parents of the repeated snapshot are ahead of the bare base, over the seeds."""
    found = {(one["task"], one["seed"]): one["gain"] for one in everywhere(config, cells) if one["snapshot"] == config.repeated}
    return {task: interval([gain for (own, _), gain in found.items() if own == task]) for task in config.parents}


def _finite(row: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no infinite numbers: an interval of one seed has no ends."""
    return {
        key: [end if math.isfinite(end) else None for end in value] if isinstance(value, tuple) else value for key, value in row.items()
    }


def table(config: RetentionConfig, rows: Sequence[Mapping[str, Any]], gained: Mapping[str, Interval]) -> str:
    """A Markdown line for each child and task at the repeated snapshot; pass rates in points of 100."""
    ahead = ", ".join(f"{_points(gain)} on {task}" for task, gain in gained.items())
    seeds = max((row["seeds"] for row in rows), default=0)
    head = (
        f"Snapshot of step {config.repeated}, {config.retrain_steps} steps of retraining, {seeds} seed(s). Pass rates in points of 100, "
        f"with their 95 % interval over the seeds; each interval stands for itself. The parents are ahead of the bare base by {ahead}.\n"
    )
    lines = [head, f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(_columns(row))} |" for row in rows)]) + "\n"


def _columns(row: Mapping[str, Any]) -> list[str]:
    gain, birth = row["gain"][0], row["birth"][0]
    control = row["child"] in CONTROLS.values()
    return [
        row["child"] if control else _spoken(row["child"]),
        row["task"],
        _points(row["birth"]),
        f"{100 * (1 + birth / gain):.0f} %" if gain > 0 else "",
        ", ".join("never" if updates is None else str(updates) for updates in row["recovered"]),
        _points(row["area_lost"]),
        _points(row["end"]),
        row["verdict"],
        "" if control else f"{_points(row['against_control'])} {row['versus_control']}",
        _points(row["against_fresh"]),
    ]


def _spoken(child: str) -> str:
    """``m2 layer gaussian``; what a variant changes stands behind."""
    name, *words = child.split()
    return " ".join([name, get_operator(name).alias.replace("_", " "), *words])


def _points(found: Interval) -> str:
    mean, low, high = (100 * value for value in found)
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]" if math.isfinite(low) else f"{mean:+.1f}"
