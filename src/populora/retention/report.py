"""What the benchmark leaves for readers: ``results.json``, ``table.md`` and the figures."""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from populora.operators import get_operator
from populora.retention.figures import draw_figures
from populora.retention.grid import read_cells
from populora.retention.settings import CONTROLS, RetentionConfig, plain
from populora.retention.verdicts import Interval, everywhere, summary
from populora.runlog.directory import versions
from populora.runlog.files import json_bytes, write_file

COLUMNS = (
    "operator", "task", "at birth, to the parent", "recovered at step", "area lost, points x steps", "to the control", "to a fresh adapter",
    "at the end, to the parent", "verdict",
)  # fmt: skip


def write_report(config: RetentionConfig, out: Path) -> None:
    """Write all of it from the finished cells and print the table. Raises `RunDirectoryError`."""
    cells = read_cells(config, out)
    rows = summary(config, cells)
    facts = {"cores": os.cpu_count(), "machine": platform.machine(), "versions": versions()}
    content = {
        "settings": plain(config), **facts, "cells": [{key: value for key, value in cell.items() if key != "curve"} for cell in cells],
        "summary": [_finite(row) for row in rows], "children": everywhere(config, cells),
    }  # fmt: skip
    write_file(out / "results.json", json_bytes(content))
    text = table(config, rows)
    write_file(out / "table.md", text.encode())
    sys.stdout.write(text)
    for file in draw_figures(config, out, cells):
        sys.stdout.write(f"wrote {file}\n")


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinite numbers: an interval of one seed has no ends."""
    return {
        key: [end if math.isfinite(end) else None for end in value] if isinstance(value, tuple) else value for key, value in row.items()
    }


def table(config: RetentionConfig, rows: Sequence[dict[str, Any]]) -> str:
    """A Markdown line for each operator and task at the repeated snapshot; pass rates in points of 100."""
    head = (
        f"Snapshot of step {config.repeated}, {config.retrain_steps} steps of retraining, {len(config.seeds)} seeds. Pass rates in points "
        "of 100, with their 95 % interval over the seeds.\n"
    )
    lines = [head, f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for row in rows:
        operator = get_operator(row["operator"])
        control = operator.name in CONTROLS.values()
        columns = [
            operator.name if control else f"{operator.name} {operator.alias.replace('_', ' ')}",
            row["task"],
            _points(row["birth"]),
            ", ".join("never" if step is None else str(step) for step in row["recovered"]),
            _points(row["area_lost"]),
            "" if control else _points(row["against_control"]),
            _points(row["against_fresh"]),
            _points(row["final"]),
            row["verdict"],
        ]
        lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines) + "\n"


def _points(found: Interval) -> str:
    mean, low, high = (100 * value for value in found)
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]" if math.isfinite(low) else f"{mean:+.1f}"
