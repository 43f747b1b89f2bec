"""The quality of the training signal: sampling noise of rho, and the reasons of rejected proposals and failed answers.

For a problem of true solve rate p, rho is the mean of K Bernoulli samples. Its variance is p (1 - p) / K, estimated without bias by
rho (1 - rho) / (K - 1). The variance of rho over the problems of a step is the mean of that plus the variance of p.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from populora.report.arms import Arm
from populora.report.drawing import PALE, Drawing, categorical_colours, legend, line_styles, mean, panels, stack, trailing
from populora.report.figure import Figure, MissingFigure, Study, describe_runs
from populora.report.run_data import Array, RunData, Steps

NOISE = ("rho_noise", "Noise of rho", "")
REASONS = ("reasons", "Why proposals were rejected and answers failed", "")
COLOURED, OTHERS = 9, "others"
"""Number of reasons with a colour of their own; label of the rest."""
SIDES = {"teacher/rejected": "proposals rejected", "student/failed": "answers failed"}
Shares = dict[str, Array]


def noise_figure(study: Study) -> Figure | MissingFigure:
    """Draw the standard error of rho, the share of its variance that is chance, and its distribution at the end."""
    arms = study.arms
    samples = {arm.label: arm.runs[0].config.selfplay.rho_samples for arm in arms}
    rows = [row for arm in arms for run in arm.runs for row in rho_noise(run, samples[arm.label], arm.label)]
    if not rows:
        return MissingFigure(*NOISE, "there are no problems with a rho (of two samples or more) in the runs' tables")
    return Figure(
        *NOISE,
        definition=(
            f"rho is a mean of K samples of a problem, here K = {', '.join(f'{k} ({label})' for label, k in samples.items())}. "
            "Standard error: the root of "
            "the mean of rho (1 - rho) / (K - 1) over the step's problems. Chance: that variance divided by the variance of rho over the "
            "problems; 1 means that problems cannot be told apart by rho at all. Barely solved: problems with exactly one correct sample "
            "of K, which pay the teacher most and of which new samples would show some as unsolved. Right: the frequency of each value of "
            "rho in the last tenth of the steps."
        ),
        source="proposals.parquet: step, rho; config.json: selfplay.rho_samples",
        runs=f"{describe_runs(arms)}; trailing means over {study.smooth} steps",
        rows=rows,
        draw=lambda: _draw_noise(arms, rows, samples, study.smooth),
    )


def rho_noise(run: RunData, samples: int, arm: str) -> list[dict[str, Any]]:
    """Return a record for each step: ``standard_error``, ``chance``, ``barely`` (a share), and the counts of rho = 0/K to K/K."""
    if samples < 2:
        return []
    table = run.table("proposals", ("step", "rho")).drop_null()
    steps, rhos = table["step"].to_numpy(), table["rho"].to_numpy()
    rows: list[dict[str, Any]] = []
    for step in np.unique(steps).tolist():
        rho = rhos[steps == step]
        noise, variance = float(np.mean(rho * (1 - rho)) / (samples - 1)), float(np.var(rho, ddof=1)) if len(rho) > 1 else 0.0
        counts = np.bincount(np.rint(rho * samples).astype(int), minlength=samples + 1)
        chance = min(1.0, noise / variance) if variance else None
        rows.append({
            "arm": arm, "run": run.name, "step": step, "problems": len(rho), "standard_error": noise**0.5, "chance": chance,
            "barely": float(counts[1] / len(rho)), "counts": " ".join(map(str, counts)),
        })  # fmt: skip
    return rows


def _draw_noise(arms: tuple[Arm, ...], rows: list[dict[str, Any]], samples: dict[str, int], smooth: int) -> Drawing:
    drawing, axes = panels(1, 4)
    lines = line_styles(arms)
    by_arm: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_arm[row["arm"]][row["run"]].append(row)
    for arm in arms:
        look: dict[str, Any] = {"color": arm.colour, "linestyle": lines[arm.label], "linewidth": 1.2}
        for run_rows in by_arm[arm.label].values():
            for axis, key in zip(axes[0], ("standard_error", "chance", "barely"), strict=False):
                values = np.array([row[key] for row in run_rows], dtype=float)
                axis.plot([row["step"] for row in run_rows], trailing(values, smooth), **look)
        last = [row for run_rows in by_arm[arm.label].values() for row in run_rows[-max(1, len(run_rows) // 10) :]]
        if last:
            counts = np.sum([np.array(row["counts"].split(), dtype=float) for row in last], axis=0)
            axes[0, 3].plot(np.arange(len(counts)) / samples[arm.label], counts / counts.sum(), marker="o", markersize=3, **look)
    for axis, title in zip(axes[0], ("standard error of rho", "chance, of the variance", "barely solved"), strict=False):
        axis.set(title=title, xlabel="step")
        axis.set_ylim(bottom=0)
    axes[0, 3].set(title="share of problems", xlabel="rho", ylim=(0, None))
    legend(drawing, arms)
    return drawing


def reasons_figure(study: Study) -> Figure | MissingFigure:
    """Draw the shares of rejected proposals and of failed answers by reason, stacked."""
    arms = study.arms
    rows = [
        {"arm": arm.label, "run": run.name, "side": title, "reason": reason, "step": step, "share": value}
        for arm in arms
        for run in arm.runs
        for side, title in SIDES.items()
        for reason, values in shares(run, side).items()
        for step, value in zip(run.metrics.steps.tolist(), values.tolist(), strict=True)
    ]
    if not rows:
        return MissingFigure(*REASONS, "no run has counts of reasons")
    return Figure(
        *REASONS,
        definition=(
            "Share of the step's proposals that was rejected (left), and of its answers that failed (right; void ones and those that only "
            f"fill a batch left out), by reason, stacked. The {COLOURED} most frequent reasons have a colour; trailing means. "
            "A reason such as error:exception is the sandbox's verdict; the tables hold the exception's name."
        ),
        source="metrics.jsonl: teacher/rejected/REASON, teacher/validity, student/failed/REASON, student/solve_rate",
        runs=f"{describe_runs(arms)}; mean over an arm's runs, trailing means over {study.smooth} steps",
        rows=rows,
        draw=lambda: _draw_reasons(arms, study.smooth),
    )


def shares(run: RunData, side: str) -> Shares:
    """Return the share [steps] of proposals (``teacher/rejected``) or counted answers (``student/failed``) by reason.

    Counts are scaled to 1 - validity and 1 - solve rate: every rejected proposal and every failed answer has a reason.
    """
    log = run.metrics
    counts = {reason: np.nan_to_num(log.get(f"{side}/{reason}")) for reason in log.under(side)}
    lost = 1 - log.get("teacher/validity" if side == "teacher/rejected" else "student/solve_rate")
    total = np.sum(list(counts.values()), axis=0) if counts else np.zeros(len(log.steps))
    scale = np.divide(np.nan_to_num(lost), total, out=np.zeros(len(lost)), where=total > 0)
    return {reason: values * scale for reason, values in counts.items()}


def _draw_reasons(arms: tuple[Arm, ...], smooth: int) -> Drawing:
    drawing, axes = panels(len(arms), 2, width=4.4, height=1.9, sharex=True)
    by_side = {side: {arm.label: [(run.metrics.steps, shares(run, side)) for run in arm.runs] for arm in arms} for side in SIDES}
    totals = {side: _totals([run_shares for runs in by_arm.values() for _, run_shares in runs]) for side, by_arm in by_side.items()}
    frequent = dict.fromkeys(reason for by_reason in totals.values() for reason, _ in by_reason[:COLOURED])
    colours = {**categorical_colours(list(frequent)), OTHERS: PALE}  # the same on both sides
    for column, (side, title) in enumerate(SIDES.items()):
        reasons = [reason for reason, _ in totals[side]]
        groups = {reason: [reason] for reason in reasons[:COLOURED]}
        if reasons[COLOURED:]:
            groups[OTHERS] = reasons[COLOURED:]
        for axis, arm in zip(axes[:, column], arms, strict=True):
            _draw_arm(axis, by_side[side][arm.label], groups, colours, smooth)
            axis.set(title=f"{title}: {arm.label}", ylabel="share", ylim=(0, None))
        handles, labels = axes[0, column].get_legend_handles_labels()
        if handles:
            axes[0, column].legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=6)  # as stacked
        axes[-1, column].set_xlabel("step")
    return drawing


def _draw_arm(axis: Any, runs: list[tuple[Steps, Shares]], groups: dict[str, list[str]], colours: dict[str, Any], smooth: int) -> None:
    """Draw a layer for each group of reasons: the mean over runs of the smoothed sum of their shares."""
    if not groups:  # in the first steps of a run every proposal may be accepted
        axis.text(0.5, 0.5, "none", ha="center", color=PALE, transform=axis.transAxes)
        return
    layers: Shares = {}
    steps = np.unique(np.concatenate([steps for steps, _ in runs]))
    for label, reasons in groups.items():
        sums = [(steps, sum((own[reason] for reason in reasons if reason in own), np.zeros(len(steps)))) for steps, own in runs]
        _, smoothed = stack([(steps, trailing(values, smooth)) for steps, values in sums])
        layers[label] = np.nan_to_num(mean(smoothed))
    axis.stackplot(steps, *layers.values(), colors=[colours[label] for label in layers], labels=list(layers), linewidth=0)


def _totals(runs: list[Shares]) -> list[tuple[str, float]]:
    """Return the reasons with the sums of their shares over runs and steps, the largest first."""
    totals: defaultdict[str, float] = defaultdict(float)
    for run in runs:
        for reason, values in run.items():
            totals[reason] += float(values.sum())
    return sorted(totals.items(), key=lambda item: (-item[1], item[0]))
