"""How much of rho is chance: what K samples a problem can and cannot tell.

Of one problem with true rate p, rho is the mean of K Bernoulli draws: its variance is p (1 - p) / K, estimated without bias by
rho (1 - rho) / (K - 1). The variance of rho over a step's problems is that plus the variance of p.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from populora.report.arms import Arm
from populora.report.curves import trailing
from populora.report.figure import Absent, Figure, Study, shown
from populora.report.loading import RunData

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

NAME, TITLE = "rho_noise", "Noise of rho"


def noise_figure(study: Study) -> Figure | Absent:
    """Standard error of rho, the share of its variance that is chance, and its distribution at the end."""
    arms = study.arms
    samples = {arm.label: arm.runs[0].setting("selfplay.rho_samples", 0) for arm in arms}
    rows = [row for arm in arms for run in arm.runs for row in rho_noise(run, samples[arm.label], arm.label)]
    if not rows:
        return Absent(NAME, TITLE, "there are no problems with a rho (of two samples or more) in the runs' tables")
    return Figure(
        name=NAME,
        title=TITLE,
        definition=(
            "rho is a mean of K samples of a problem, here K = "
            + ", ".join(f"{k} ({label})" for label, k in samples.items())
            + ". Standard error: the root of "
            "the mean of rho (1 - rho) / (K - 1) over the step's problems. Chance: that variance divided by the variance of rho over the "
            "problems; 1 means that problems cannot be told apart by rho at all. Barely solved: problems with exactly one correct sample "
            "of K, which pay the teacher most and of which a second look would show some as unsolved. Right: how often each value of rho "
            "came in the last tenth of the steps."
        ),
        source="proposals.parquet: step, rho; config.json: selfplay.rho_samples",
        shown=f"{shown(arms)}; trailing means over {study.smooth} steps",
        rows=rows,
        draw=lambda: _draw(arms, rows, samples, study.smooth),
    )


def rho_noise(run: RunData, samples: int, arm: str) -> list[dict[str, Any]]:
    """A row a step: ``standard_error``, ``chance``, ``barely`` (share), ``problems``, and the counts of rho = 0/K to K/K."""
    if samples < 2:
        return []
    table = run.table("proposals", ("step", "rho")).drop_null()
    steps, rhos = table["step"].to_numpy(), table["rho"].to_numpy()
    rows: list[dict[str, Any]] = []
    for step in np.unique(steps).tolist():
        own = rhos[steps == step]
        noise, spread = float(np.mean(own * (1 - own)) / (samples - 1)), float(np.var(own, ddof=1)) if len(own) > 1 else 0.0
        counts = np.bincount(np.rint(own * samples).astype(int), minlength=samples + 1)
        rows.append(
            {
                "arm": arm,
                "run": run.name,
                "step": step,
                "problems": len(own),
                "standard_error": noise**0.5,
                "chance": min(1.0, noise / spread) if spread else None,
                "barely": float(counts[1] / len(own)),
                "counts": " ".join(map(str, counts)),
            }
        )
    return rows


def _draw(arms: tuple[Arm, ...], rows: list[dict[str, Any]], samples: dict[str, int], smooth: int) -> Drawing:
    from populora.report.drawing import legend, panels, styles

    drawing, axes = panels(1, 4)
    lines = styles(arms)
    for arm in arms:
        look: dict[str, Any] = {"color": arm.colour, "linestyle": lines[arm.label], "linewidth": 1.2}
        own: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            if row["arm"] == arm.label:
                own[row["run"]].append(row)
        for found in own.values():
            for axis, key in zip(axes[0], ("standard_error", "chance", "barely"), strict=False):
                values = np.array([np.nan if row[key] is None else row[key] for row in found])
                axis.plot([row["step"] for row in found], trailing(values, smooth), **look)
        last = [row for found in own.values() for row in found[-max(1, len(found) // 10) :]]
        if last:
            counts = np.sum([np.array(row["counts"].split(), dtype=float) for row in last], axis=0)
            axes[0, 3].plot(np.arange(len(counts)) / samples[arm.label], counts / counts.sum(), marker="o", markersize=3, **look)
    for axis, title in zip(axes[0], ("standard error of rho", "chance, of the variance", "barely solved"), strict=False):
        axis.set(title=title, xlabel="step")
        axis.set_ylim(bottom=0)
    axes[0, 3].set(title="share of problems", xlabel="rho", ylim=(0, None))
    legend(drawing, arms)
    return drawing
