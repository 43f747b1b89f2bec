"""Say in plain words what happened in a run, from its log alone: the first lines of the closing summary and of the report.

A difference is called a change only if it is larger than twice its standard error: that of the two means over steps or, for held-out
accuracy, that of two independent samples of problems. Steps depend on each other, so this is a guard against noise and not a test.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, variance

from populora.core.types import Kind
from populora.domains.registry import load_domain
from populora.runs.style import plural
from populora.sandbox.runner import PYTHON

MIN_STEPS = 12
"""The first and the last quarter are compared: at least three steps each."""
MIN_STANDARD_ERRORS = 2.0
TRENDS = (
    (
        "teacher/difficulty", "Problems", "harder", "easier",
        "{first:.0%} of the attempts at them failed in the first {steps} steps, {last:.0%} in the last {steps}",
    ),
)  # fmt: skip
"""Metric, its subject, the words for a rise and a fall, and the sentence about its means."""
SIZES = "{{first:.1f}} {label} in the first {{steps}} steps, {{last:.1f}} in the last {{steps}}"

Log = Sequence[Mapping[str, float]]


def highlights(log: Log, problems_per_type: int, domains: Sequence[str] = (PYTHON,)) -> list[str]:
    """Describe difficulty, program length, held-out accuracy and children, in as many sentences as ``log`` (metrics.jsonl) has data for.

    ``problems_per_type``: held-out problems of each task type, 0 if unknown. A domain without any valid problem in the last quarter of the
    steps is named.
    """
    if not log:
        return []
    if len(log) < MIN_STEPS:
        return [f"{plural(len(log), 'step')}: too few to see a change, which takes {MIN_STEPS}."]
    sentences = [_trend(log, *trend) for trend in TRENDS] + [_size(log, domain, len(domains) > 1) for domain in domains]
    sentences += [_invalid(log, domain) for domain in domains if len(domains) > 1]
    sentences += [_held_out_accuracy(log, len(Kind) * len(domains) * problems_per_type), _children(log)]
    return [sentence for sentence in sentences if sentence]


def _size(log: Log, name: str, several: bool) -> str:
    domain = load_domain(name)
    subject, metric = f"Programs in {name}" if several else "Programs", domain.shown[0]
    return _trend(log, f"teacher/{metric}", subject, "longer", "shorter", SIZES.format(label=domain.label(metric)))


def _invalid(log: Log, domain: str) -> str:
    last = [line.get(f"teacher/validity/{domain}", 0.0) for line in log[-(len(log) // 4) :]]
    return "" if any(last) else f"No valid problem of {domain} in the last {len(last)} steps: its teachers have lost the task."


def _trend(log: Log, name: str, subject: str, more: str, less: str, means: str) -> str:
    """Compare the means of a metric over the first and the last quarter of the steps; empty if a quarter has fewer than two values."""
    steps = len(log) // 4
    first, last = ([line[name] for line in part if name in line] for part in (log[:steps], log[-steps:]))
    if min(len(first), len(last)) < 2:
        return ""
    error = math.sqrt(variance(first) / len(first) + variance(last) / len(last))
    direction = _direction(fmean(last) - fmean(first), error)
    verdict = {1: f"got {more}", -1: f"got {less}", 0: f"did not clearly get {more} or {less}"}[direction]
    return f"{subject} {verdict}: {means.format(first=fmean(first), last=fmean(last), steps=steps)}."


def _held_out_accuracy(log: Log, problems: int) -> str:
    evaluations = [(int(line["step"]), line["held_out/accuracy"]) for line in log if "held_out/accuracy" in line]
    if len(evaluations) < 2 or not problems:
        return ""
    (first_step, first), (last_step, last) = evaluations[0], evaluations[-1]
    error = math.sqrt((first * (1 - first) + last * (1 - last)) / problems)
    verdict = {1: "rose", -1: "fell", 0: "did not clearly change"}[_direction(last - first, error)]
    return f"Accuracy on {problems} held-out problems {verdict}: {first:.1%} after step {first_step}, {last:.1%} after step {last_step}."


def _children(log: Log) -> str:
    counts, spared = ([int(line.get(f"evolution/{name}", 0.0)) for line in log] for name in ("children", "spared"))
    rounds = sum(born + stayed > 0 for born, stayed in zip(counts, spared, strict=True))
    replaced = "child replaced a weak member" if sum(counts) == 1 else "children replaced weak members"
    stayed = f"; {plural(sum(spared), 'newborn')} at the bottom stayed" if sum(spared) else ""
    return f"Evolution: {sum(counts)} {replaced} in {plural(rounds, 'round')}{stayed}." if rounds else ""


def _direction(change: float, error: float) -> int:
    """Return 1 for a rise, -1 for a fall, 0 for a change within its error."""
    return 0 if abs(change) <= MIN_STANDARD_ERRORS * error else 1 if change > 0 else -1
