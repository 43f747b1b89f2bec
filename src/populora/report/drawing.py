"""Curves of metrics over steps, and drawing with matplotlib: panels, curves of arms, matrices, colours and legends."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from populora.report.arms import INK, Arm
from populora.report.many_members import draw_quantiles, too_many
from populora.report.run_data import Array, Log, Steps

TEACHER, STUDENT, PALE = "#d55e00", "#0072b2", "#8b8b8c"
STYLE: dict[Any, Any] = {
    "font.size": 8, "axes.titlesize": 9, "axes.labelsize": 8, "legend.fontsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6, "lines.linewidth": 1.4, "legend.frameon": False,
    "text.parse_math": False, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "axes.titlecolor": INK,
    "xtick.color": INK, "ytick.color": INK, "axes.titlelocation": "left",
    "figure.facecolor": "white", "axes.facecolor": "none", "svg.fonttype": "none", "pdf.fonttype": 42,
    "axes.grid": True, "axes.axisbelow": True,
    "grid.color": PALE, "grid.alpha": 0.25, "grid.linewidth": 0.5,
}  # fmt: skip
"""Of all figures: those of the page, of files, and those that a user draws."""
LINES = ("-", "--", ":", "-.")
"""Line styles of arms that share a colour, as baselines do."""
MEMBER = re.compile(r"[TSA]\d+")
WHOLE_RUN = "all"
"""The `Curve.member` of a value over all samples of a run."""


@dataclass(frozen=True)
class Curve:
    """One metric of one member, or of the whole run, over its steps [n]; NaN where it is undefined."""

    arm: str
    run: str
    member: str
    metric: str
    steps: Steps
    values: Array


def member_order(member: str) -> tuple[bool, int, str]:
    """Sort key of members: teachers before students, T9 before T10."""
    return member[0] == "S", len(member), member


def members_of(log: Log, metric: str = "rating/mu") -> list[str]:
    """Return the members that have a metric, in order."""
    return sorted((name for name in log.under(metric) if MEMBER.fullmatch(name)), key=member_order)


def curves_of(arms: Iterable[Arm], metric: str, task: str = "", domain: str = "") -> list[Curve]:
    """Return the curves of a metric for whole runs and their members, over all task types or one, or of one domain.

    The whole run's value of a metric that is logged by member alone (``learner/…``) is the mean over its members.
    """
    curves: list[Curve] = []
    for arm in arms:
        for run in arm.runs:
            if domain and domain not in run.config.domains:
                continue
            log, ending = run.metrics, f"/{task}" if task else run.ending(domain)
            values = {member: log.get(f"{metric}/{member}{ending}") for member in members_of(log, metric)}
            if metric + ending in log.columns:
                values[WHOLE_RUN] = log.get(metric + ending)
            elif values:
                values[WHOLE_RUN] = mean(np.array(list(values.values())))
            curves += [Curve(arm.label, run.name, member, metric + ending, log.steps, logged) for member, logged in values.items()]
    return curves


def curve_rows(curves: Iterable[Curve]) -> Iterator[dict[str, Any]]:
    """Yield the defined values of curves as records."""
    for curve in curves:
        row = {"arm": curve.arm, "run": curve.run, "member": curve.member, "metric": curve.metric}
        for step, value in zip(curve.steps.tolist(), curve.values.tolist(), strict=True):
            if value == value:
                yield {**row, "step": step, "value": value}


def trailing(values: Array, window: int) -> Array:
    """Return the mean [n] of the defined values among the last ``window`` up to each step; NaN where there are none."""
    if not len(values):
        return values
    defined, ones = np.isfinite(values), np.ones(min(window, len(values)))
    # Differences of running sums would be faster, but one huge value would spoil all that come after it.
    sums = np.convolve(np.where(defined, values, 0.0), ones)[: len(values)]
    counts = np.convolve(defined, ones)[: len(values)]
    return np.divide(sums, counts, out=np.full(len(values), np.nan), where=counts > 0)


def stack(series: Sequence[tuple[Steps, Array]]) -> tuple[Steps, Array]:
    """Return the union [n] of the steps of several series, and their values on it [series, n], NaN where a series has none."""
    steps = np.unique(np.concatenate([logged for logged, _ in series]))
    stacked = np.full((len(series), len(steps)), np.nan)
    for row, (logged, values) in zip(stacked, series, strict=True):
        row[np.searchsorted(steps, logged)] = values
    return steps, stacked


def mean(values: Array) -> Array:
    """Return the mean of the defined values over the first axis; NaN where there are none."""
    defined = np.isfinite(values)
    total, count = np.where(defined, values, 0.0).sum(axis=0), defined.sum(axis=0)
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


def mean_of_shared(series: Sequence[tuple[Steps, Array]]) -> tuple[Steps, Array]:
    """Return the steps [n] up to the end of the shortest of several series, and their `mean` [n] there.

    Beyond, the mean would jump because it is over fewer runs.
    """
    steps, values = stack(series)
    shared = steps <= min(logged[-1] for logged, _ in series)
    return steps[shared], mean(values[:, shared])


def panels(rows: int, columns: int, width: float = 2.5, height: float = 1.9, **options: Any) -> tuple[Drawing, Any]:
    """Return a drawing and its axes [rows, columns]; ``width`` and ``height`` are inches of one panel."""
    drawing = Drawing(figsize=(width * columns, height * rows + 0.3), layout="constrained")
    return drawing, drawing.subplots(rows, columns, squeeze=False, **options)


def tag_artist(artist: Any, member: str) -> None:
    """Give an artist of a member the id by which the page finds it, numbered within the drawing so that files are reproducible."""
    axis = artist.axes
    artist.set_gid(f"mark.{member}.{axis.figure.axes.index(axis)}-{len(axis.get_children())}")


def draw_curves(axis: Axes, arms: Sequence[Arm], curves: Sequence[Curve], smooth: int, members: bool = False) -> None:
    """Draw the mean over the runs of each arm, up to the step where the first run ends, and the band or the lines of its members.

    Many members have bands of quantiles.
    """
    lines = line_styles(arms)
    for arm in arms:
        # Smoothed over its own steps, so that a short run is not drawn beyond its end.
        smoothed = [(curve, (curve.steps, trailing(curve.values, smooth))) for curve in curves if curve.arm == arm.label]
        whole = [series for curve, series in smoothed if curve.member == WHOLE_RUN]
        single = [(curve.member, series) for curve, series in smoothed if curve.member != WHOLE_RUN]
        if too_many(member for member, _ in single):
            draw_quantiles(axis, *stack([series for _, series in single]), arm.colour)
        elif members:
            for member, (steps, values) in single:
                style = "--" if member[0] == "T" else "-"
                tag_artist(axis.plot(steps, values, style, color=arm.colour, linewidth=0.6, alpha=0.5)[0], member)
        elif len(single) > 1:
            steps, values = stack([series for _, series in single])
            low, high = np.fmin.reduce(values), np.fmax.reduce(values)
            axis.fill_between(steps, low, high, color=arm.colour, alpha=0.18, linewidth=0)
        if logged := [(steps, values) for steps, values in whole if np.isfinite(values).any()]:
            axis.plot(*mean_of_shared(logged), lines[arm.label], color=arm.colour)


def heatmap(axis: Axes, values: Any, rows: Sequence[str], columns: Sequence[str], digits: int = 2) -> None:
    """Draw a matrix of shares [rows, columns] with its numbers; NaN stays empty."""
    shares = np.array(values, dtype=float).reshape(len(rows), len(columns))
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1.4, aspect="auto")  # pale enough for dark numbers everywhere
    for (row, column), value in np.ndenumerate(shares):
        if np.isfinite(value):
            axis.text(column, row, f"{value:.{digits}f}", ha="center", va="center", fontsize=7, color="black")
    axis.set_xticks(range(len(columns)), columns)
    axis.set_yticks(range(len(rows)), rows)
    axis.grid(visible=False)


def categorical_colours(names: Sequence[str]) -> dict[str, Any]:
    """Return a colour for each of up to 18 names, strong ones first; the rest is grey."""
    table = [colour for index, colour in enumerate(colormaps["tab20"](range(20))) if index // 2 != 7]  # 14 and 15 are grey
    return dict.fromkeys(names, PALE) | dict(zip(names, [*table[::2], *table[1::2]], strict=False))


def line_styles(arms: Sequence[Arm]) -> dict[str, Any]:
    """Return the line style of each arm by its label; arms of one colour have different ones."""
    colours = [arm.colour for arm in arms]
    return {arm.label: LINES[colours[:index].count(arm.colour) % len(LINES)] for index, arm in enumerate(arms)}


def legend(drawing: Drawing, arms: Sequence[Arm]) -> None:
    """Draw the arms' colours and line styles above all panels."""
    lines = line_styles(arms)
    handles = [Line2D([], [], color=arm.colour, linestyle=lines[arm.label]) for arm in arms]
    drawing.legend(handles, [arm.label for arm in arms], loc="outside upper left", ncols=max(1, min(len(arms), 4)))
