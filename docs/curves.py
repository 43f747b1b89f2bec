"""Draw the curves of the presets that have been measured, from the committed files of runs: docs/presets/*.png.

    python docs/curves.py

A thin line is one seed, the thick one their mean. Means over five steps, but for held-out accuracy, which is measured now and then.
"""

from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow.parquet as pq

from populora.report.arms import INK, PALETTE

DOCS = Path(__file__).parent
SMOOTH = 5


@dataclass(frozen=True)
class Source:
    """Where the runs of a preset are."""

    folder: str
    arm: str
    """The files are called after it and the seed."""
    size: str
    """The metric that tells how large programs are."""
    size_label: str

    def files(self) -> list[Path]:
        return sorted((DOCS.parent / "benchmarks" / self.folder).glob(f"{self.arm}-[0-9]*.parquet"))


LINES = ("teacher/loc", "lines of code")
SOURCES = {
    "tiny": Source("first_minutes/results", "tiny", *LINES),
    **{name: Source("first_minutes/others", name, *LINES) for name in ("tiny_1t1s", "tiny_azr", "tiny_baseline")},
    "tiny_4t4s": Source("first_run/measured", "4t4s", *LINES),
    "sql": Source("sql/measured", "2t2s", "teacher/columns", "columns"),
    "sql_baseline": Source("sql/measured", "agent", "teacher/columns", "columns"),
}


def main() -> None:
    for name, source in SOURCES.items():
        draw(source, DOCS / "presets" / f"{name}.png")


def draw(source: Source, target: Path) -> None:
    """Draw difficulty, size of programs and held-out accuracy by step."""
    panels = [("teacher/difficulty", "failed attempts"), (source.size, source.size_label), ("held_out/accuracy", "held-out accuracy")]
    runs = [pq.read_table(file, columns=[metric for metric, _ in panels]).to_pydict() for file in source.files()]
    figure, axes = plt.subplots(1, len(panels), figsize=(9, 2.4), constrained_layout=True)
    for axis, (metric, label) in zip(axes, panels, strict=True):
        curves = [curve(run[metric]) for run in runs]
        for steps, values in curves:
            axis.plot(steps, values, color=INK, alpha=0.3, linewidth=0.8)
        axis.plot(curves[0][0], np.mean([values for _, values in curves], 0), color=PALETTE[0], linewidth=2)
        axis.set(xlabel="step", ylabel=label)
    figure.savefig(target, dpi=100, metadata={"Software": None})
    plt.close(figure)


def curve(column: list[float | None]) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps that have a value, and the values: trailing means if every step has one."""
    steps = np.array([step for step, value in enumerate(column, start=1) if value is not None])
    values = np.array([value for value in column if value is not None])
    if len(values) == len(column):
        values = np.array([values[max(0, end - SMOOTH) : end].mean() for end in range(1, len(values) + 1)])
    return steps, values


if __name__ == "__main__":
    main()
