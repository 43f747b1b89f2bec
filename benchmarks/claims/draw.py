"""Draw the picture at the top of the results: what solvers learn by steps, by sampled tokens and by CPU time, and by level of difficulty.

    python -m benchmarks.claims.draw       writes results.png from the files in measured/

Lines are means over runs, bands one standard error of them. A run's accuracy is the test suite's, over levels and solvers. CPU time counts
all processes of a run, on the kind of processor that measured most runs; a step has the share that it has of the sampled tokens. The dotted
line is the untrained base.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from benchmarks.claims.measures import MeasuredRun, Suite, Values, accuracies, grouped, read_runs, read_suites
from benchmarks.claims.protocol import PROTOCOL
from benchmarks.claims.suites import FOLDER, LEVELS
from benchmarks.measuring import options

from populora.report.arms import INK, PALETTE

DRAWN = ("agent", "agent_x4", "1t1s", "4t4s", "8t8s")
"""Arms of the picture; the table has them all."""
COLOURS = dict(zip(DRAWN, (INK, *PALETTE), strict=False))
MARKERS = dict(zip(DRAWN, "os^Dv", strict=True))
AXES: dict[str, Callable[[MeasuredRun], Values]] = {
    "steps": lambda run: np.arange(1.0, run.steps + 1),
    "millions of sampled tokens": lambda run: np.cumsum(run.sampled) / 1e6,
    "CPU minutes": lambda run: run.facts["cpu_seconds"] / 60 * np.cumsum(run.sampled) / np.sum(run.sampled),
}
"""What a run has spent after each of its steps."""


def main() -> None:
    args = options(__doc__, Path(__file__).parent).parse_args()
    arms = {arm: runs for arm, runs in read_runs(args.out / "measured").items() if arm in DRAWN}
    base = json.loads((FOLDER / "levels.json").read_text())["base"]["test"]
    draw(arms, read_suites(), [base[level]["greedy"] for level in LEVELS], args.out / "results.png")


def draw(arms: Mapping[str, Sequence[MeasuredRun]], suites: Mapping[str, Suite], base: Sequence[float], file: Path) -> None:
    """Draw all arms. ``base`` is the untrained base's accuracy by level."""
    figure, axes = plt.subplots(1, len(AXES) + 1, figsize=(14, 3.6), constrained_layout=True)
    groups = suites["test"].groups
    levels, timed = axes[-1], Counter(run.facts.get("processor") for runs in arms.values() for run in runs).most_common(1)[0][0]
    for arm, runs in arms.items():
        steps, rows = progress(runs, suites)
        curves = np.array([[grouped(row, groups) for row in of_run] for of_run in rows])
        for axis, (name, spent) in zip(axes, AXES.items(), strict=False):
            kept = [
                not name.startswith("CPU") or (run.facts.get("processor") == timed and run.facts["cpu_seconds"] is not None) for run in runs
            ]
            if any(kept):
                used = np.mean([spent(run)[steps - 1] for run, keep in zip(runs, kept, strict=True) if keep], 0)
                _line(axis, arm, used, curves[kept])
        final = np.array([[np.nanmean(of_run[-1][places]) for places in groups] for of_run in rows])
        _line(levels, arm, np.arange(1, len(groups) + 1), final)
    for axis, title in zip(axes, AXES, strict=False):
        axis.axhline(float(np.mean(base)), color=INK, linestyle=":", linewidth=1)
        axis.set(xlabel=title, ylabel="accuracy, test suite" if title == "steps" else "")
    levels.plot(np.arange(1, len(base) + 1), base, color=INK, linestyle=":", linewidth=1)
    levels.set(xlabel="level of difficulty", ylabel=f"accuracy after {PROTOCOL['steps']} steps")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def progress(runs: Sequence[MeasuredRun], suites: Mapping[str, Suite]) -> tuple[Values, list[list[Values]]]:
    """Return the snapshots' steps, and for each run and snapshot the test suite's row of the mean over solvers."""
    steps = sorted({row["step"] for row in runs[0].answers if row["suite"] == "test"})
    return np.array(steps), [[accuracies([run], suites, step)["test"] for step in steps] for run in runs]


def _line(axis: plt.Axes, arm: str, x: Values, values: Values) -> None:
    """Draw the mean of ``values`` [runs, points] with a band of its standard error."""
    mean = values.mean(0)
    error = values.std(0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.zeros_like(mean)
    title = f"{PROTOCOL['arms'][arm]['title']} ({len(values)})"
    axis.plot(x, mean, color=COLOURS[arm], marker=MARKERS[arm], markersize=4, label=title)
    axis.fill_between(x, mean - error, mean + error, color=COLOURS[arm], alpha=0.15, linewidth=0)


if __name__ == "__main__":
    main()
