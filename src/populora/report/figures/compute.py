"""Compute accounting as in the paper's table."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from populora.evals.text_table import ABSENT, TextCell, TextRow, TextTable
from populora.report.arms import Arm
from populora.report.figure import Absent, Figure, Study, shown
from populora.report.loading import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

WARM_UP = 5
"""Steps that the paper's table leaves out."""
UNTIMED = "no run has timings.jsonl"


def compute_figure(study: Study) -> Figure | Absent:
    """Seconds a step and an adapter's step, and their ratio to the first baseline."""
    name, title, paper = "compute", "Compute accounting", "Table 2 (compute accounting)"
    rows = compute(study)
    if not rows:
        return Absent(name, title, UNTIMED, paper)
    return Figure(
        name=name,
        title=title,
        definition=(
            f"Median seconds of a step, without each run's first {WARM_UP} where there are more, over all runs of an arm. Adapter-step: "
            "that divided by the adapters trained. Steps are those a run is set to, the mean where an arm's runs are set to different "
            "numbers; hours are the median times these steps, so those of one run. Ratio: to the first baseline, where one was timed. "
            "Seconds are those of the machines the runs ran on: only arms that ran alike, on equal hardware and beside nothing else, can "
            "be compared."
        ),
        source="timings.jsonl: seconds/step; config.json: population, steps",
        shown=shown([arm for arm in study.arms if any(row["arm"] == arm.label for row in rows)]),
        rows=rows,
        draw=lambda: _draw_compute(study, rows),
        paper=paper,
        tables=(_table(rows),),
    )


def compute(study: Study) -> list[dict[str, Any]]:
    """The table's rows, an arm each; empty where nothing was timed."""
    rows: list[dict[str, Any]] = []
    base: dict[str, Any] = {}
    for arm in study.arms:
        seconds = np.concatenate([_warm(run.timings.get("seconds/step")) for run in arm.runs])
        if len(seconds):
            median, steps = float(np.median(seconds)), _steps(arm)
            row = {
                "arm": arm.label,
                "adapters": arm.adapters or None,
                "steps": steps,
                "adapter_steps": arm.adapters * steps if arm.adapters and steps else None,
                "seconds_per_step": median,
                "seconds_per_adapter_step": median / arm.adapters if arm.adapters else None,
                "hours": median * steps / 3600 if steps else None,
            }
            base = base or (row if arm.baseline else {})
            keys = {"ratio": "seconds_per_step", "ratio_per_adapter": "seconds_per_adapter_step"}
            ratios = {ratio: row[key] / base[key] if base.get(key) and row[key] is not None else None for ratio, key in keys.items()}
            rows.append({**row, **ratios, "steps_timed": len(seconds)})
    return rows


def _warm(seconds: Array) -> Array:
    kept = seconds[np.isfinite(seconds)]
    return kept[WARM_UP:] if len(kept) > WARM_UP else kept


def _steps(arm: Arm) -> float | None:
    """Steps of a run: the mean over those runs whose settings say it."""
    said = [steps for run in arm.runs if (steps := run.setting("steps", 0))]
    return mean(said) if said else None


def _table(rows: list[dict[str, Any]]) -> TextTable:
    columns = {
        "adapters": "adapters", "steps": "steps", "adapter_steps": "adapter-steps", "hours": "hours",
        "seconds_per_step": "s/step", "seconds_per_adapter_step": "s/adapter-step",
        "ratio": "ratio/step", "ratio_per_adapter": "ratio/adapter-step",
    }  # fmt: skip
    return TextTable(
        caption="Compute of each arm",
        groups=(("one run", 4), ("median seconds", 2), ("to the baseline", 2)),
        columns=tuple(columns.values()),
        blocks=(tuple(TextRow(row["arm"], tuple(TextCell(_number(row[key])) for key in columns)) for row in rows),),
    )


def _number(value: float | None) -> str:
    """A count whole, what is measured with two decimals or, where it is small, two digits."""
    if value is None:
        return ABSENT
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}" if value >= 0.1 else f"{value:.2g}"


def _draw_compute(study: Study, rows: list[dict[str, Any]]) -> Drawing:
    from populora.report.drawing import panels

    colours = {arm.label: arm.colour for arm in study.arms}
    drawing, axes = panels(1, 3, width=3.0, height=0.5 + 0.35 * len(rows))
    for axis, key, title in zip(
        axes[0],
        ("seconds_per_step", "seconds_per_adapter_step", "ratio"),
        ("seconds a step", "seconds an adapter-step", "ratio to the baseline"),
        strict=True,
    ):
        values = [row[key] or 0.0 for row in rows]
        bars = axis.barh([row["arm"] for row in rows], values, color=[colours[row["arm"]] for row in rows], height=0.6)
        axis.bar_label(bars, ["–" if row[key] is None else f"{row[key]:.2f}" for row in rows], padding=2, fontsize=7)
        axis.set_title(title)
        axis.set(xlim=(0, 1.2 * max(values) or 1), ylim=(len(rows) - 0.4, -0.6))
        axis.grid(visible=False, axis="y")
        if axis is not axes[0, 0]:
            axis.set_yticklabels([])
        if not any(values):
            axis.set_axis_off()
            axis.text(0, 0.5, "no baseline was timed" if key == "ratio" else "not known", va="center", transform=axis.transAxes)
    return drawing
