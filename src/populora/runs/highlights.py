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
FAILED = "{first:.0%} of the attempts at them failed in the first {steps} steps, {last:.0%} in the last {steps}"
SIZES = "{{first:.1f}} {label} in the first {{steps}} steps, {{last:.1f}} in the last {{steps}}"

Log = Sequence[Mapping[str, float]]


def highlights(log: Log, problems_per_type: int, domains: Sequence[str] = (PYTHON,)) -> list[str]:
    """Describe difficulty, program length, held-out accuracy and children, in as many sentences as ``log`` (metrics.jsonl) has data for.

    ``problems_per_type``: held-out problems of each task type, 0 if unknown. With several domains each has its own sentences, and those
    without any valid problem come first.
    """
    if not log:
        return []
    lost = lost_domains(log, domains)
    if len(log) < MIN_STEPS:
        return [*lost, f"{plural(len(log), 'step')}: too few to see a change, which takes {MIN_STEPS}."]
    endings = {domain: f"/{domain}" if len(domains) > 1 else "" for domain in domains}
    sentences = [_difficulty(log, ending) for ending in endings.values()]
    sentences += [_size(log, *part) for part in endings.items()]
    sentences += [_held_out_accuracy(log, len(Kind) * problems_per_type, ending) for ending in endings.values()]
    return [*lost, *(sentence for sentence in (*sentences, _children(log)) if sentence)]


def lost_domains(log: Log, domains: Sequence[str]) -> list[str]:
    """Name the domains without any valid problem in the whole run or, with several domains and `MIN_STEPS`, in its last quarter."""
    sentences: list[str] = []
    for domain in domains:
        name = f"teacher/validity/{domain}" if len(domains) > 1 else "teacher/validity"
        valid = [line.get(name, 0.0) > 0 for line in log if name in line or len(domains) > 1]
        last = valid[-(len(log) // 4) :] if len(domains) > 1 and len(log) >= MIN_STEPS else valid
        if valid and not any(valid):
            sentences.append(f"No valid problem of {domain} in {plural(len(valid), 'step')}, the whole run.")
        elif valid and not any(last):
            sentences.append(f"No valid problem of {domain} in the last {len(last)} steps.")
    return sentences


def _difficulty(log: Log, ending: str) -> str:
    return _trend(log, f"teacher/difficulty{ending}", f"Problems{_of(ending)}", "harder", "easier", FAILED)


def _size(log: Log, name: str, ending: str) -> str:
    domain = load_domain(name)
    sizes = SIZES.format(label=domain.label(domain.shown[0]))
    return _trend(log, f"teacher/{domain.shown[0]}{ending}", f"Programs{_of(ending)}", "longer", "shorter", sizes)


def _of(ending: str) -> str:
    return ending.replace("/", " in ")


def _trend(log: Log, name: str, subject: str, rising: str, falling: str, means: str) -> str:
    """Compare the means of a metric over the first and the last quarter of the steps; empty if a quarter has fewer than two values."""
    steps = len(log) // 4
    first, last = ([line[name] for line in part if name in line] for part in (log[:steps], log[-steps:]))
    if min(len(first), len(last)) < 2:
        return ""
    error = math.sqrt(variance(first) / len(first) + variance(last) / len(last))
    direction = _direction(fmean(last) - fmean(first), error)
    verdict = {1: f"got {rising}", -1: f"got {falling}", 0: f"did not clearly get {rising} or {falling}"}[direction]
    return f"{subject} {verdict}: {means.format(first=fmean(first), last=fmean(last), steps=steps)}."


def _held_out_accuracy(log: Log, problems: int, ending: str) -> str:
    name = f"held_out/accuracy{ending}"
    evaluations = [(int(line["step"]), line[name]) for line in log if name in line]
    if len(evaluations) < 2 or not problems:
        return ""
    (first_step, first), (last_step, last) = evaluations[0], evaluations[-1]
    error = math.sqrt((first * (1 - first) + last * (1 - last)) / problems)
    verdict = {1: "rose", -1: "fell", 0: "did not clearly change"}[_direction(last - first, error)]
    subject = f"{problems} held-out problems{_of(ending)}"
    return f"Accuracy on {subject} {verdict}: {first:.1%} after step {first_step}, {last:.1%} after step {last_step}."


def _children(log: Log) -> str:
    counts, spared = ([int(line.get(f"evolution/{name}", 0.0)) for line in log] for name in ("children", "spared"))
    rounds = sum(born + stayed > 0 for born, stayed in zip(counts, spared, strict=True))
    replaced = "child replaced a weak member" if sum(counts) == 1 else "children replaced weak members"
    stayed = f"; {plural(sum(spared), 'newborn')} at the bottom stayed" if sum(spared) else ""
    return f"Evolution: {sum(counts)} {replaced} in {plural(rounds, 'round')}{stayed}." if rounds else ""


def _direction(change: float, error: float) -> int:
    """Return 1 for a rise, -1 for a fall, 0 for a change within its error."""
    return 0 if abs(change) <= MIN_STANDARD_ERRORS * error else 1 if change > 0 else -1
