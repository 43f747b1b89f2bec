"""Results of the first-run experiment: means of the last 20 steps a run, differences with intervals over seeds, table, curves.

Entropy by role and the share of answers that reason come from the runs' Parquet tables, the other curves from their metrics.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from populora.runlog.directory import read_config
from populora.runlog.journal import read_log
from populora.runlog.records import read_table
from populora.tasks.parsing import reasons

HERE = Path(__file__).parent
CURVES = {
    "student/solve_rate": "solve rate",
    "teacher/difficulty": "difficulty",
    "teacher/validity": "validity",
    "teacher/loc": "lines of code",
    "teacher/cyclomatic": "cyclomatic complexity",
    "teacher/ast_depth": "AST depth",
    "teacher/variables": "variables",
    "student/response_length": "answer tokens",
    "archive/coverage": "coverage of the archive",
    "held_out/accuracy": "held-out accuracy, greedy",
    "proposals/entropy": "entropy of proposals",
    "attempts/entropy": "entropy of answers",
    "attempts/reasoning": "share of answers that reason (code_i, code_o)",
}
COLOURS = {"baseline": "black", "1t1s": "tab:orange", "2t2s": "tab:green", "4t4s": "tab:blue"}
LAST = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path("runs/first_run"))
    parser.add_argument("--out", type=Path, default=HERE)
    chosen = parser.parse_args()
    folders = [folder for folder in sorted(chosen.root.iterdir()) if (folder / "config.json").exists()]
    logs = {folder.name: curves_of(folder) for folder in folders}
    chosen.out.mkdir(exist_ok=True)
    results = {
        "runs": {name: ends(log) for name, log in logs.items()},
        "against_baseline": {arm: against_baseline(logs, arm) for arm in COLOURS if arm != "baseline"},
        "steps": {folder.name: len(logs[folder.name]) for folder in folders},
    }
    (chosen.out / "results.json").write_text(json.dumps(results, indent=2, allow_nan=False) + "\n")
    (chosen.out / "table.md").write_text(table(results), encoding="utf-8")
    draw(logs, chosen.out)
    print(json.dumps(results["against_baseline"], indent=2))


def curves_of(folder: Path) -> list[dict[str, float]]:
    """The metrics of a finished run, with those that only its tables tell."""
    log, steps = read_log(folder), read_config(folder).steps
    if len(log) != steps:
        raise SystemExit(f"{folder} has {len(log)} of {steps} steps: `populora resume {folder}` finishes it, or move it away")
    return [line | _from_tables(folder, int(line["step"])) for line in log]


def _from_tables(folder: Path, step: int) -> dict[str, float]:
    """Entropy (nats, mean over tokens) of proposals and answers, and how many answers to code_i and code_o reason."""
    tables = {name: read_table(folder, name, [step]).to_pydict() for name in ("proposals", "attempts")}
    found = {f"{name}/entropy": float(np.average(of["entropy"], weights=of["response_tokens"])) for name, of in tables.items()}
    answers = [text for text, task in zip(tables["attempts"]["text"], tables["attempts"]["task"], strict=True) if task != "code_f"]
    return found | {"attempts/reasoning": float(np.mean([reasons(text) for text in answers]))}


def ends(log: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Mean of each curve over the first and last `LAST` steps of one run."""
    return {name: {"first": _mean(log[:LAST], name), "last": _mean(log[-LAST:], name)} for name in CURVES if _has(log, name)}


def _has(log: list[dict[str, float]], name: str) -> bool:
    return any(name in line for line in log[:LAST]) and any(name in line for line in log[-LAST:])


def _mean(lines: list[dict[str, float]], name: str) -> float:
    return round(float(np.mean([line[name] for line in lines if name in line])), 4)


def against_baseline(logs: dict[str, list[dict[str, float]]], arm: str) -> dict[str, dict]:
    """Difference of the arms' last-20-step means; Welch's 95 % interval over seeds where both arms have two or more."""
    found = {}
    for name in CURVES:
        ours, base = (
            [_mean(log[-LAST:], name) for run, log in logs.items() if run.startswith(f"{kind}-") and _has(log, name)]
            for kind in (arm, "baseline")
        )
        if not ours or not base:
            continue
        entry: dict = {"seeds": [len(ours), len(base)], "difference": round(float(np.mean(ours) - np.mean(base)), 4)}
        if min(len(ours), len(base)) >= 2:
            interval = stats.ttest_ind(ours, base, equal_var=False).confidence_interval(0.95)
            entry["interval_95"] = [round(float(interval.low), 4), round(float(interval.high), 4)]
        found[name] = entry
    return found


def table(results: dict) -> str:
    """Markdown: a row a curve; for each arm the mean over its runs of the first and the last steps, and the difference to the baseline."""
    arms = [arm for arm in COLOURS if any(run.startswith(f"{arm}-") for run in results["runs"])]
    lines = ["| | " + " | ".join(f"{arm}, first → last" + (", − baseline" if arm != "baseline" else "") for arm in arms) + " |"]
    lines.append("|---" * (1 + len(arms)) + "|")
    for name, title in CURVES.items():
        lines.append(f"| {title} | " + " | ".join(_cell(results, arm, name) for arm in arms) + " |")
    return "\n".join(lines) + "\n"


def _cell(results: dict, arm: str, name: str) -> str:
    found = [curves[name] for run, curves in results["runs"].items() if run.startswith(f"{arm}-") and name in curves]
    if not found:
        return "–"
    text = " → ".join(f"{np.mean([end[when] for end in found]):.3g}" for when in ("first", "last"))
    against = results["against_baseline"].get(arm, {}).get(name)
    if against is None:
        return text
    interval = "[{:+.3g}, {:+.3g}]".format(*against["interval_95"]) if "interval_95" in against else "(one seed)"
    return f"{text}, {against['difference']:+.3g} {interval}"


def draw(logs: dict[str, list[dict[str, float]]], folder: Path) -> None:
    """Every curve, smoothed over five steps; one thin line a run."""
    figure, axes = plt.subplots(3, 5, figsize=(18, 9), constrained_layout=True)
    for axis, (name, title) in zip(axes.flat, CURVES.items(), strict=False):
        for run, log in logs.items():
            arm = run.split("-")[0]
            points = [(line["step"], line[name]) for line in log if name in line]
            if not points:
                continue
            steps, values = np.array(points).T
            width = 1 if name.startswith("held_out") else min(5, len(values))
            smooth = np.convolve(values, np.ones(width) / width, mode="valid")
            axis.plot(steps[width - 1 :], smooth, color=COLOURS[arm], lw=1.2, alpha=0.85, label=arm)
        axis.set_title(title)
        axis.set_xlabel("step")
    for axis in axes.flat[len(CURVES) :]:
        axis.set_axis_off()
    handles = dict(zip(*reversed(axes.flat[0].get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
    figure.savefig(folder / "curves.png", dpi=90)


if __name__ == "__main__":
    main()
