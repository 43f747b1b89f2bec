"""Compare arms with the baseline: means of the last tenth of the steps that all runs have, a run a sample, with Welch's interval."""

import warnings
from collections.abc import Collection
from typing import Any

import numpy as np
from scipy import stats

from populora.report.drawing import Drawing, legend, line_styles, panels
from populora.report.figure import Figure, MissingFigure, Study, describe_runs
from populora.report.run_data import RunData
from populora.runs.style import CAPTIONS, domain_captions

FIGURE = ("comparison", "Arms compared over seeds", "")
FIRST = ("student/solve_rate", "teacher/difficulty", "teacher/validity")
LAST = ("archive/coverage", "student/response_length", "teacher/response_length", "held_out/accuracy")
"""Metrics before and after those of the domains."""
Values = dict[str, list[float]]
"""The value of each run by arm."""


def comparison_figure(study: Study) -> Figure | MissingFigure:
    """Draw each arm's values, a dot for each run, and differences to the first baseline with 95 % intervals."""
    not_begun, study = study.not_begun, study.begun
    arms = study.arms
    if len(arms) < 2:
        reason = f"expected runs of two or more arms, got {len(arms)}: add runs with other settings, such as `--baseline RUN`.{not_begun}"
        return MissingFigure(*FIGURE, reason.removesuffix("."))
    captions = compared_metrics(study)
    values = {metric: _values(study, metric) for metric in captions}
    complete = [metric for metric in captions if all(values[metric].values())]
    if not complete:
        return MissingFigure(*FIGURE, "no metric was logged in all arms")
    rows = [row for metric in complete for row in _compare(metric, values[metric])]
    first, last = last_tenth(study)
    return Figure(
        *FIGURE,
        definition=(
            f"A dot is a run: the mean over the steps {first} to {last}, the last tenth up to the last step that all runs have (or a "
            "metric's last value before). The bar is the arm's mean. Arms have the order of the legend. Below: an arm's number, its "
            f"difference to {arms[0].label}, and Welch's 95 % interval over runs, not corrected for the number of comparisons.{not_begun}"
            + "".join(f" {remark}" for remark in remarks(study, complete))
        ),
        source=f"metrics.jsonl: {', '.join(captions)}",
        runs=f"{describe_runs(arms)}; steps {first} to {last}",
        rows=rows,
        drawing=lambda: _draw(study, rows, captions),
    )


def remarks(study: Study, complete: Collection[str]) -> list[str]:
    """Return a sentence for each limit of the comparison, which has the metrics ``complete``."""
    lacking = [metric for metric in compared_metrics(study) if metric not in complete]
    single = [arm.label for arm in study.arms if len(arm.runs) < 2]
    repeated = [arm.label for arm in study.arms if len(set(arm.seeds)) < len(arm.runs)]
    sentences = {
        f"Left out, because an arm lacks them: {', '.join(lacking)}.": lacking,
        f"No interval with {', '.join(single)}: a single run says nothing about how much seeds differ.": single,
        f"A seed occurs twice in {', '.join(repeated)}: equal seeds give equal runs, so intervals are too narrow.": repeated,
    }
    return [sentence for sentence, holds in sentences.items() if holds]


def compared_metrics(study: Study) -> dict[str, str]:
    """Return captions of the metrics that are compared, by their names; of several domains each has its own, which end in its name."""
    captions = {name: CAPTIONS[name] for name in FIRST} | domain_captions(study.domains)
    # Runs of several domains have an archive for each of them, and none for all.
    return captions | {name: CAPTIONS[name] for name in LAST if len(study.domains) == 1 or name != "archive/coverage"}


def last_tenth(study: Study) -> tuple[int, int]:
    """Return the first and last step compared, of runs that all have a step."""
    last = min(run.metrics.last_step for arm in study.arms for run in arm.runs)
    return last - max(1, last // 10) + 1, last


def _values(study: Study, metric: str) -> Values:
    steps, (name, _, domain) = last_tenth(study), metric.rpartition("/")
    names = {run: metric for arm in study.arms for run in arm.runs}
    if domain in study.domains:  # a run of this domain alone has the metric without its name
        names = {run: name + run.ending(domain) if domain in run.config.domains else metric for run in names}
    ends = {arm.label: [value_at_end(run, names[run], steps) for run in arm.runs] for arm in study.arms}
    return {label: [value for value in run_values if value is not None] for label, run_values in ends.items()}


def value_at_end(run: RunData, metric: str, steps: tuple[int, int]) -> float | None:
    """Return the mean of a metric from the first to the last of ``steps`` or, if it has no value there, its last value before."""
    log, (first, last) = run.metrics, steps
    values = log.get(metric)
    before = np.isfinite(values) & (log.steps <= last)
    within = before & (log.steps >= first)
    chosen = values[within] if within.any() else values[before][-1:]
    return float(chosen.mean()) if len(chosen) else None


def _compare(metric: str, values: Values) -> list[dict[str, Any]]:
    reference, reference_values = next(iter(values.items()))
    rows: list[dict[str, Any]] = []
    for label, run_values in values.items():
        low, high, p = welch(run_values, reference_values) if label != reference else (None, None, None)
        average = float(np.mean(run_values))
        rows.append({
            "metric": metric, "arm": label, "runs": len(run_values), "mean": average,
            "values": " ".join(f"{value:.6g}" for value in run_values),
            "against": reference, "difference": average - float(np.mean(reference_values)), "low": low, "high": high, "p": p,
        })  # fmt: skip
    return rows


def welch(first: list[float], second: list[float]) -> tuple[float | None, float | None, float | None]:
    """Return the 95 % interval of a difference of means and its p by Welch's t; None with fewer than two runs in an arm or no variance."""
    if min(len(first), len(second)) < 2 or np.ptp(first) + np.ptp(second) == 0:
        return None, None, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an arm whose runs are equal to rounding
        test: Any = stats.ttest_ind(first, second, equal_var=False)
        interval = test.confidence_interval(0.95)
    return float(interval.low), float(interval.high), float(test.pvalue)


def _draw(study: Study, rows: list[dict[str, Any]], captions: dict[str, str]) -> Drawing:
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    drawing, axes = panels(-(-len(metrics) // 4), 4, height=1.5 + 0.13 * len(study.arms))
    for axis in axes.flat[len(metrics) :]:
        axis.set_axis_off()
    lines = line_styles(study.arms)
    styles = {arm.label: {"color": arm.colour, "linestyle": lines[arm.label]} for arm in study.arms}
    for axis, metric in zip(axes.flat, metrics, strict=False):
        _draw_metric(axis, [row for row in rows if row["metric"] == metric], styles)
        axis.set_title(captions[metric])
    legend(drawing, study.arms)
    return drawing


def _draw_metric(axis: Any, rows: list[dict[str, Any]], styles: dict[str, dict[str, Any]]) -> None:
    numbered = list(enumerate(rows, start=1))
    for number, row in numbered:
        style = styles[row["arm"]]
        values = [float(value) for value in row["values"].split()]
        axis.plot([number] * len(values), values, "o", color=style["color"], markersize=4, alpha=0.7)
        axis.plot([number - 0.25, number + 0.25], [row["mean"]] * 2, **style, linewidth=2)
    for line, (number, row) in enumerate((arm for arm in numbered if arm[1]["low"] is not None), start=1):
        text = f"{number}:  {row['difference']:+.2g}  [{row['low']:+.2g}, {row['high']:+.2g}]"
        options = {"ha": "center", "va": "center", "fontsize": 7, "color": styles[row["arm"]]["color"]}
        axis.annotate(text, (0.5, 0), (0, -9 * line - 13), "axes fraction", "offset points", **options)
    axis.ticklabel_format(useOffset=False)
    axis.margins(y=0.15)
    if np.ptp([row["mean"] for row in rows]) < 1e-6:  # equal but for rounding
        axis.set_ylim(0.9 * rows[0]["mean"] - 1e-6, 1.1 * rows[0]["mean"] + 1e-6)
    axis.set(xlim=(0.4, len(rows) + 0.6), xticks=range(1, len(rows) + 1))
    axis.tick_params("x", labelsize=7)
