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

DRAWS, LEVEL, LEAST = 10_000, 0.05, 5
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
    """Give a verdict to every claim whose arms have all their runs, with p corrected by Holm over all claims.

    A claim that waits for runs counts with a p of 1, so that no later run can take back that a claim holds. Its effects stay unsaid. A
    claim with too few values of a measure counts in the same way, and is unclear.
    """
    complete = [all(_there(arms, planned, each) for each in claim["comparisons"]) for claim in asked]
    claims = [
        {**claim, "comparisons": [compare(arms, each, len(claim["comparisons"]), planned) for each in claim["comparisons"]]} if known
        else {**claim, "verdict": "incomplete"}
        for claim, known in zip(asked, complete, strict=True)
    ]  # fmt: skip
    corrected = holm([max(each.get("p", 1.0) for each in claim["comparisons"]) for claim in claims])
    return [
        {**claim, "p_corrected": p, "verdict": verdict(claim["comparisons"], p, all(complete))} if known else claim
        for claim, known, p in zip(claims, complete, corrected, strict=True)
    ]


def _there(arms: Mapping[str, Arm], planned: Mapping[str, int], comparison: Mapping[str, Any]) -> bool:
    """Whether the comparison's arms have all their runs, of which some may have no value of a measure."""
    names = [name for name in (comparison["arm"], comparison["against"]) if isinstance(name, str)]
    return all(max((len(each.values) for each in arms.get(name, {}).values()), default=0) == planned.get(name) for name in names)


def compare(arms: Mapping[str, Arm], comparison: Mapping[str, Any], comparisons: int, planned: Mapping[str, int]) -> dict[str, Any]:
    """Return effect, intervals and p of one of a claim's ``comparisons``; none where too few runs of an arm have a value."""
    measure, against = comparison["measure"], comparison["against"]
    values = {name: arms[name].get(measure) for name in (comparison["arm"], against) if isinstance(name, str)}
    ours, theirs = values[comparison["arm"]], values.get(against, Observations(np.array([against])))
    few = [name for name, known in values.items() if not known or len(known.values) < min(LEAST, planned[name])]
    if few or not ours or not theirs:
        return {**comparison, "too_few_values": few}
    test = (
        stats.ttest_ind(ours.values, theirs.values, equal_var=False)
        if isinstance(against, str)
        else stats.ttest_1samp(ours.values, against)
    )
    effect, of_runs = float(ours.values.mean() - theirs.values.mean()), test.confidence_interval(1 - LEVEL)
    varies = np.isfinite(test.df) and np.isfinite(test.pvalue)  # else all runs of an arm are equal
    freedom = test.df if varies else len(ours.values) - 1
    of_runs_alone = (of_runs.high - of_runs.low) / 2 / stats.t.ppf(1 - LEVEL / 2, freedom) if varies else 0.0
    error = float(np.hypot(of_runs_alone, problem_error(ours, theirs)))
    intervals = [error * stats.t.ppf(1 - level / 2, freedom) for level in (LEVEL, LEVEL / comparisons)]
    interval, wide = ([rounded(effect - width), rounded(effect + width)] for width in intervals)
    return {
        **comparison, "runs": [len(ours.values), len(theirs.values)], "accuracy": ours.rows is not None, "effect": rounded(effect),
        "interval_95": interval, "interval_of_claim": wide, "p": float(test.pvalue) if varies else 1.0,
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


def verdict(comparisons: Sequence[Mapping[str, Any]], corrected: float, final: bool) -> str:
    """Say ``holds``, ``does not`` or ``unclear`` by the protocol's rule.

    Before the ``final`` correction, a claim with a small effect may hold later. It is unclear then, not refuted.
    """
    if any("effect" not in each for each in comparisons):
        return "unclear"

    def signed(each: Mapping[str, Any], interval: str) -> list[float]:
        return sorted(bound * (1 if each["sign"] == "+" else -1) for bound in each[interval])

    if all(signed(each, "interval_95")[0] > 0 for each in comparisons) and (corrected < LEVEL or not final):
        return "holds" if corrected < LEVEL else "unclear"
    refuted = [signed(each, "interval_of_claim")[1] < (MARGIN if each["accuracy"] else 0.0) for each in comparisons]
    return "does not" if any(refuted) else "unclear"


def summary(observed: Observations) -> dict[str, float]:
    values = observed.values
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return {"mean": rounded(values.mean()), "sd": rounded(spread), "values": [rounded(value) for value in values]}


def rounded(value: float) -> float:
    """Round to four digits that count: variances are small."""
    return float(f"{value:.4g}")
