"""Summarise the first-run experiment: means of the first and last 20 steps, differences with intervals over seeds, table, curves.

Lines of code and cyclomatic complexity are what the experiment is about, named before it ran; the other rows are for looking.
Each interval is Welch's at 95 % for one comparison alone, without a correction for their number.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from benchmarks.first_run.measures import CURVES, Curve, read_measured
from benchmarks.measuring import options, write_results
from scipy import stats

HERE = Path(__file__).parent
COLOURS = {
    "baseline": "black",
    "baseline_equal": "tab:red",
    "baseline_b128": "grey",
    "1t1s": "tab:orange",
    "2t2s": "tab:green",
    "4t4s": "tab:blue",
}
BASELINES = ("baseline", "baseline_equal", "baseline_b128")
"""The preset's single agent, and its controls."""
BESIDE_CONTROLS = ("teacher/loc", "teacher/cyclomatic", "teacher/difficulty", "held_out/accuracy")
"""Measures that are also compared with the controls."""
LAST = 20


def main() -> None:
    parser = options(__doc__, HERE)
    parser.add_argument("--measured", type=Path, default=HERE / "measured", help="folder that run.py wrote")
    args = parser.parse_args()
    measured = {file.stem: read_measured(file) for file in sorted(args.measured.glob("*.parquet"))}
    if not measured:
        raise SystemExit(f"no measured run in {args.measured}: run.py makes them")
    check_alike(measured)
    runs = run_ends(measured)
    against = compare(runs)
    conditions = next(iter(measured.values()))["conditions"]
    write_results(args.out / "results.json", {"conditions": conditions, "against": against})
    (args.out / "table.md").write_text(table(runs, against), encoding="utf-8")
    draw({name: run["curves"] for name, run in measured.items()}, args.out)


def check_alike(measured: dict[str, dict]) -> None:
    """Refuse to compare runs of different bases, prompts or settings, other than what makes the arms."""
    (first, curves), *others = measured.items()
    for name, run in others:
        if run["conditions"] != curves["conditions"]:
            difference = f"{json.dumps(run['conditions'])} against {json.dumps(curves['conditions'])}"
            raise SystemExit(f"{name} is not comparable with {first}: {difference}. Move curves of them away")


def run_ends(measured: dict[str, dict]) -> dict[str, dict]:
    """Return the ends of every curve of every run, coverage at equal numbers of programs, and held-out programs proposed."""
    programs = min(run["curves"]["archive/total_problems"][-1] for run in measured.values())
    runs = {}
    for name, run in measured.items():
        curves = run["curves"]
        coverage = float(np.interp(programs, curves["archive/total_problems"], curves["archive/coverage"]))
        runs[name] = {curve: ends(curves[curve]) for curve in CURVES}
        # Larger populations write more programs a step: coverage is compared at equal numbers of them too.
        runs[name][f"coverage at {programs:.0f} programs"] = {"last": round(coverage, 5)}
        runs[name]["held-out programs proposed"] = {"last": run["held_out_programs_proposed"]}
    return runs


def compare(runs: dict[str, dict]) -> dict[str, dict]:
    """Return the differences of each arm to the baseline, and of the main measures to its controls."""
    arms, against = arms_of(runs), {}
    for baseline in (baseline for baseline in BASELINES if baseline in arms):
        # Populations are compared with each baseline, its controls with the baseline itself.
        others = [arm for arm in arms if arm not in BASELINES or (baseline == BASELINES[0] and arm != baseline)]
        names = rows_of(runs) if baseline == BASELINES[0] else BESIDE_CONTROLS
        against[baseline] = {arm: differences(runs, arm, baseline, names) for arm in others}
    return against


def ends(curve: Curve) -> dict[str, float]:
    """Return the means of a curve over its first and its last `LAST` steps; none where it has no value in them."""
    parts = {"first": curve[:LAST], "last": curve[-LAST:]}
    known = {when: [value for value in part if value is not None] for when, part in parts.items()}
    return {when: round(float(np.mean(values)), 4) for when, values in known.items() if values}


def differences(runs: dict, arm: str, baseline: str, names: Sequence[str]) -> dict[str, dict]:
    """Return differences of last values, with Welch's 95 % interval over seeds where both arms have two or more."""
    entries = {}
    for name in names:
        ours, theirs = ([row["last"] for row in ends_of(runs, kind, name) if "last" in row] for kind in (arm, baseline))
        if not ours or not theirs:
            continue
        entry: dict = {"seeds": [len(ours), len(theirs)], "difference": round(float(np.mean(ours) - np.mean(theirs)), 4)}
        if min(len(ours), len(theirs)) >= 2 and np.ptp(ours) + np.ptp(theirs) > 0:
            interval = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
            entry["interval_95"] = [round(float(interval.low), 4), round(float(interval.high), 4)]
        entries[name] = entry
    return entries


def ends_of(runs: dict, arm: str, name: str) -> list[dict[str, float]]:
    return [run[name] for key, run in runs.items() if key.startswith(f"{arm}-") and name in run]


def arms_of(runs: dict) -> list[str]:
    """Return the arms that have a run, in the order of the table."""
    return [arm for arm in COLOURS if any(run.startswith(f"{arm}-") for run in runs)]


def rows_of(runs: dict) -> list[str]:
    """Return the names of everything that any run has, in order of appearance."""
    return list(dict.fromkeys(name for run in runs.values() for name in run))


def table(runs: dict, against: dict) -> str:
    """Return Markdown: a row a curve; for each arm the mean over its runs of the first and the last steps, and the difference."""
    arms, to_baseline = arms_of(runs), against.get(BASELINES[0], {})
    titles = [arm + (", − baseline" if arm in to_baseline else "") for arm in arms]
    lines = ["| first → last | " + " | ".join(titles) + " |", "|---" * (1 + len(arms)) + "|"]
    for name in rows_of(runs):
        lines.append(f"| {CURVES.get(name, name)} | " + " | ".join(_cell(runs, to_baseline, arm, name) for arm in arms) + " |")
    return "\n".join(lines) + "\n" + _against_controls(against)


def _cell(runs: dict, against: dict, arm: str, name: str) -> str:
    rows = ends_of(runs, arm, name)
    if not rows:
        return "–"
    entry = against.get(arm, {}).get(name)
    return f"{means_text(rows)}, {difference_text(entry)}" if entry else means_text(rows)


def means_text(rows: Sequence[Mapping[str, float]]) -> str:
    """Write the means over the runs of the first steps, if any run has those, and of the last; and how many runs lack one of them."""
    parts = [[row[when] for row in rows if when in row] for when in ("first", "last") if when == "last" or any(when in row for row in rows)]
    missing = len(rows) - min(map(len, parts))
    text = " → ".join(f"{np.mean(part):.3g}" if part else "–" for part in parts)
    return f"{text} ({missing} without)" if missing else text


def difference_text(entry: Mapping) -> str:
    """Write a difference of `differences` with its interval."""
    interval = "[{:+.3g}, {:+.3g}]".format(*entry["interval_95"]) if "interval_95" in entry else "(no interval)"
    return f"{entry['difference']:+.3g} {interval}"


def _against_controls(against: dict) -> str:
    lines = [
        f"- {arm} − {baseline}: {CURVES[name]} {difference_text(entries[name])}"
        for baseline in BASELINES[1:] for arm, entries in against.get(baseline, {}).items() for name in BESIDE_CONTROLS if name in entries
    ]  # fmt: skip
    return "\n" + "\n".join(lines) + "\n" if lines else ""


def draw(runs: dict[str, dict[str, Curve]], folder: Path) -> None:
    """Draw every curve, smoothed over five steps; one thin line a run."""
    figure, axes = plt.subplots(3, 5, figsize=(18, 9), constrained_layout=True)
    for axis, (name, title) in zip(axes.flat, CURVES.items(), strict=False):
        for run, curves in runs.items():
            arm = run.split("-")[0]
            steps, values = np.array([(step, value) for step, value in enumerate(curves[name], start=1) if value is not None]).T
            width = 1 if name.startswith("held_out") else min(5, len(values))
            smooth = np.convolve(values, np.ones(width) / width, mode="valid")
            axis.plot(steps[width - 1 :], smooth, color=COLOURS[arm], lw=1.2, alpha=0.85, label=arm)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("step")
    for axis in axes.flat[len(CURVES) :]:
        axis.set_axis_off()
    handles = dict(zip(*reversed(axes.flat[0].get_legend_handles_labels()), strict=True))
    arms = [arm for arm in COLOURS if arm in handles]
    figure.legend([handles[arm] for arm in arms], arms, loc="outside lower center", ncols=len(arms))
    figure.savefig(folder / "curves.png", dpi=90)


if __name__ == "__main__":
    main()
