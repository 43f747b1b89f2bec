"""Draw the picture at the top of the results: what solvers learn by steps, by sampled tokens and by CPU time, and by level of difficulty.

    python -m benchmarks.claims.draw       writes results.png from the files in measured/

Arms without all their runs are left out: nobody looks before the last one. Lines are means over runs, bands one standard error of them. A
run's accuracy is the test suite's, over levels and solvers. CPU time is sampled tokens by the arm's median cost of a token, of all
processes of a run, on the kind of processor that measured most runs: one run's time may be that of a machine shared with others. The
dotted line is the untrained base.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from benchmarks.claims.measures import MeasuredRun, Suite, Values, accuracies, grouped, read_runs, read_suites
from benchmarks.claims.protocol import PROTOCOL
from benchmarks.claims.suites import FOLDER, LEVELS
from benchmarks.measuring import options

from populora.report.arms import INK, PALETTE

DRAWN = ("agent", "agent_x4", "1t1s", "4t4s", "8t8s", "agent_tokens")
"""Arms of the picture; the table has them all."""
COLOURS = dict(zip(DRAWN, (INK, *PALETTE), strict=False))
MARKERS = dict(zip(DRAWN, "os^DvP", strict=True))
AXES = ("steps", "millions of sampled tokens", "CPU minutes")


def main() -> None:
    args = options(__doc__, Path(__file__).parent).parse_args()
    runs = read_runs(args.out / "measured")
    arms = {arm: runs[arm] for arm in DRAWN if is_complete(arm, runs)}
    if len(arms) < 2:
        print("no picture: fewer than two of its arms have all their runs")
        return
    base = json.loads((FOLDER / "levels.json").read_text())["base"]["test"]
    draw(arms, read_suites(), [base[level]["greedy"] for level in LEVELS], args.out / "results.png")


def draw(arms: Mapping[str, Sequence[MeasuredRun]], suites: Mapping[str, Suite], base: Sequence[float], file: Path) -> None:
    """Draw all arms. ``base`` is the untrained base's accuracy by level."""
    figure, axes = plt.subplots(1, len(AXES) + 1, figsize=(14, 3.6), constrained_layout=True)
    groups = suites["test"].groups
    levels, processor = axes[-1], Counter(run.facts.get("processor") for runs in arms.values() for run in runs).most_common(1)[0][0]
    for arm, runs in arms.items():
        steps, rows = progress(runs, suites)
        curves = over_levels(rows, suites)
        sampled = np.mean([np.cumsum(run.sampled)[steps - 1] for run in runs], 0)
        for axis, spent in zip(axes, (steps, sampled / 1e6, sampled * cost(runs, processor) / 60), strict=False):
            _line(axis, arm, spent, curves)
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


def is_complete(arm: str, runs: Mapping[str, Sequence[MeasuredRun]]) -> bool:
    """Tell whether an arm has all its runs: before, nobody looks."""
    return len(runs.get(arm, ())) == PROTOCOL["arms"][arm]["seeds"]


def over_levels(rows: Sequence[Sequence[Values]], suites: Mapping[str, Suite]) -> Values:
    """Return the accuracy over all levels of the test suite [runs, snapshots] of the rows of `progress`."""
    return np.array([[grouped(row, suites["test"].groups) for row in of_run] for of_run in rows])


def progress(runs: Sequence[MeasuredRun], suites: Mapping[str, Suite]) -> tuple[Values, list[list[Values]]]:
    """Return the snapshots' steps, and for each run and snapshot the test suite's row of the mean over solvers."""
    steps = sorted({row["step"] for row in runs[0].answers if row["suite"] == "test"})
    return np.array(steps), [[accuracies([run], suites, step)["test"] for step in steps] for run in runs]


def cost(runs: Iterable[MeasuredRun], processor: str) -> float:
    """Median CPU seconds a sampled token over the runs whose time on this kind of processor is known; NaN, which draws nothing, without."""
    timed = [run for run in runs if run.facts.get("processor") == processor and run.facts["cpu_seconds"] is not None]
    return float(np.median([run.facts["cpu_seconds"] / run.sampled.sum() for run in timed])) if timed else float("nan")


def _line(axis: plt.Axes, arm: str, x: Values, values: Values) -> None:
    """Draw the mean of ``values`` [runs, points] with a band of its standard error."""
    mean = values.mean(0)
    error = values.std(0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.zeros_like(mean)
    title = f"{PROTOCOL['arms'][arm]['title']} ({len(values)})"
    axis.plot(x, mean, color=COLOURS[arm], marker=MARKERS[arm], markersize=4, label=title)
    axis.fill_between(x, mean - error, mean + error, color=COLOURS[arm], alpha=0.15, linewidth=0)


if __name__ == "__main__":
    main()
