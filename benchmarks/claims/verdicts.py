"""Effects, intervals, p and verdicts of the claims campaign, by the protocol's `statistics`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from benchmarks.claims.measures import Values, grouped
from benchmarks.claims.protocol import PROTOCOL
from scipy import stats

from populora.core.rng import stream
from populora.evals.comparison import holm

DRAWS, LEVEL = 10_000, 0.05
MARGIN: float = PROTOCOL["statistics"]["margin"]


@dataclass(frozen=True)
class Observations:
    """A measure of an arm: a value a run, and where it is a share of problems the rows [runs, problems] and their groups."""

    values: Values
    rows: Values | None = None
    groups: Sequence[Values] = ()


Arm = dict[str, Observations]


def shares(rows: Values, groups: Sequence[Values]) -> Observations:
    return Observations(np.array([grouped(row, groups) for row in rows]), rows, groups)


def judge(
    arms: Mapping[str, Arm], planned: Mapping[str, int], asked: Sequence[Mapping[str, Any]] = PROTOCOL["claims"]
) -> list[dict[str, Any]]:
    """Give a verdict to every claim that has a value of each planned run, with p corrected by Holm over all claims.

    A claim that has none yet counts with a p of 1, so that no later run can take a verdict back. Its effects stay unsaid.
    """
    claims = [
        {**claim, "comparisons": [compare(arms, each, len(claim["comparisons"])) for each in claim["comparisons"]]} for claim in asked
    ]
    complete = [all(is_complete(each, planned) for each in claim["comparisons"]) for claim in claims]
    largest = [max(each["p"] for each in claim["comparisons"]) if known else 1.0 for claim, known in zip(claims, complete, strict=True)]
    return [
        {**claim, "p_corrected": corrected, "verdict": verdict(claim["comparisons"], corrected)}
        if known
        else {**plain, "verdict": "incomplete"}
        for plain, claim, known, corrected in zip(asked, claims, complete, holm(largest), strict=True)
    ]


def is_complete(comparison: Mapping[str, Any], planned: Mapping[str, int]) -> bool:
    """Whether every planned run of the comparison's arms has a value."""
    arms = [comparison["arm"], *([comparison["against"]] if isinstance(comparison["against"], str) else [])]
    return "interval_95" in comparison and all(made == planned.get(arm) for arm, made in zip(arms, comparison["runs"], strict=False))


def compare(arms: Mapping[str, Arm], comparison: Mapping[str, Any], comparisons: int = 1) -> dict[str, Any]:
    """Return effect, intervals and p of one of a claim's ``comparisons``; none where runs are missing."""
    measure, against = comparison["measure"], comparison["against"]
    ours = arms.get(comparison["arm"], {}).get(measure)
    theirs = arms.get(against, {}).get(measure) if isinstance(against, str) else Observations(np.array([float(against)]))
    if not ours or not theirs or len(ours.values) < 2 or (isinstance(against, str) and len(theirs.values) < 2):
        return dict(comparison)
    test = (
        stats.ttest_ind(ours.values, theirs.values, equal_var=False)
        if isinstance(against, str)
        else stats.ttest_1samp(ours.values, against)
    )
    effect, of_runs = float(ours.values.mean() - theirs.values.mean()), test.confidence_interval(1 - LEVEL)
    half = (of_runs.high - of_runs.low) / 2 / stats.t.ppf(1 - LEVEL / 2, test.df)  # the standard error over runs
    error = float(np.hypot(half, problem_error(ours, theirs)))
    intervals = [error * stats.t.ppf(1 - level / 2, test.df) for level in (LEVEL, LEVEL / comparisons)]
    interval, wide = ([rounded(effect - width), rounded(effect + width)] for width in intervals)
    return {
        **comparison, "runs": [len(ours.values), len(theirs.values)], "accuracy": ours.rows is not None, "effect": rounded(effect),
        "interval_95": interval, "interval_of_claim": wide, "p": float(test.pvalue),
    }  # fmt: skip


def problem_error(ours: Observations, theirs: Observations) -> float:
    """Standard error over problems, drawn again within their groups, the same ones for both arms; 0 for what is no share of problems."""
    if ours.rows is None:
        return 0.0
    rng, total = stream(0, "claims", "bootstrap"), np.zeros(DRAWS)
    for places in ours.groups:
        counts = rng.multinomial(len(places), [1 / len(places)] * len(places), DRAWS)
        for sign, arm in ((1, ours), (-1, theirs)):
            if arm.rows is not None:
                rows = arm.rows[:, places]
                of_run = (counts @ np.nan_to_num(rows).T) / np.maximum(counts @ (~np.isnan(rows)).T, 1)  # [draws, runs]
                total += sign * of_run.mean(1)
    return float(np.std(total / len(ours.groups)))


def verdict(comparisons: Sequence[Mapping[str, Any]], corrected: float) -> str:
    """Say ``holds``, ``does not`` or ``unclear`` by the protocol's rule."""

    def signed(each: Mapping[str, Any], interval: str) -> list[float]:
        return sorted(bound * (1 if each["sign"] == "+" else -1) for bound in each[interval])

    if all(signed(each, "interval_95")[0] > 0 for each in comparisons) and corrected < LEVEL:
        return "holds"
    refuted = [signed(each, "interval_of_claim")[1] < (MARGIN if each["accuracy"] else 0.0) for each in comparisons]
    return "does not" if any(refuted) else "unclear"


def summary(observed: Observations) -> dict[str, float]:
    values = observed.values
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return {"mean": rounded(values.mean()), "sd": rounded(spread), "runs": len(values)}


def rounded(value: float) -> float:
    return round(float(value), 5)
