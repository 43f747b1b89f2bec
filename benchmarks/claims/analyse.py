"""Compute every measure and verdict of the claims campaign from `measured/`, by `protocol.toml`.

    python -m benchmarks.claims.analyse       writes results.json and table.md

A claim whose arms lack planned runs is incomplete and has no verdict.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.claims.measures import MeasuredRun, Suite, Values, accuracies, grouped, read_runs, read_suites, scalars, vote_gain
from benchmarks.claims.protocol import PROTOCOL
from benchmarks.measuring import options, write_results
from scipy import stats

from populora.core.rng import stream
from populora.core.types import TaskType
from populora.evals.comparison import holm

HERE = Path(__file__).parent
DRAWS, LEVEL = 10_000, 0.05
MARGIN: float = PROTOCOL["statistics"]["margin"]


@dataclass(frozen=True)
class Observations:
    """A measure of an arm: a value a run, and where it is a share of problems the rows [runs, problems] and their groups."""

    values: Values
    rows: Values | None = None
    groups: Sequence[Values] = ()


Arm = dict[str, Observations]


def main() -> None:
    args = options(__doc__, HERE).parse_args()
    suites = read_suites()
    runs = read_runs(args.out / "measured")
    arms = {arm: observe([[run] for run in of_arm], suites) for arm, of_arm in runs.items()}
    for name, derived in PROTOCOL["derived"].items():
        arms[name] = observe(in_groups(runs[derived["of"]], derived["size"]), suites)
    counts = {arm: [len(runs.get(arm, [])), settings["seeds"]] for arm, settings in PROTOCOL["arms"].items()}
    finished = {arm for arm, (made, planned) in counts.items() if made == planned}
    finished |= {name for name, derived in PROTOCOL["derived"].items() if derived["of"] in finished}
    claims = judge(arms, finished)
    means = {arm: {name: summary(observed) for name, observed in measures.items()} for arm, measures in arms.items()}
    write_results(args.out / "results.json", {"runs": counts, "claims": claims, "means": means})
    (args.out / "table.md").write_text(table(claims), encoding="utf-8")


def in_groups(runs: Sequence[MeasuredRun], size: int) -> list[list[MeasuredRun]]:
    return [list(runs[start : start + size]) for start in range(0, len(runs) - size + 1, size)]


def observe(groups: Sequence[Sequence[MeasuredRun]], suites: Mapping[str, Suite]) -> Arm:
    """Compute the measures of an arm; each group of runs is one observation."""
    test = suites["test"]
    rows = [accuracies(group, suites) for group in groups]
    arm: Arm = {}
    for name in rows[0] if rows else ():
        places = suites["transfer"].groups if name == "transfer" else test.groups
        arm[name] = shares(np.array([of_group[name] for of_group in rows]), places)
    for level, places in enumerate(test.groups, start=1):
        arm[f"test/{level}"] = shares(np.array([of_group["test"] for of_group in rows]), [places])
    if all(len([row for run in group for row in run.answers if row["suite"] == "vote"]) > 1 for group in groups):
        asked = [problem for problem in test.problems if problem.task is TaskType.CODE_O]
        arm["vote_gain"] = shares(np.array([vote_gain(group) for group in groups]), Suite(asked).groups)
    if all(len(group) == 1 for group in groups):
        of_runs = [scalars(group[0], suites) for group in groups]
        for name in sorted({name for values in of_runs for name in values}):
            arm[name] = Observations(np.array([values[name] for values in of_runs if name in values]))
    return arm


def shares(rows: Values, groups: Sequence[Values]) -> Observations:
    return Observations(np.array([grouped(row, groups) for row in rows]), rows, groups)


def judge(
    arms: Mapping[str, Arm], finished: Collection[str], asked: Sequence[Mapping[str, Any]] = PROTOCOL["claims"]
) -> list[dict[str, Any]]:
    """Give a verdict to every claim whose arms are ``finished``, with p corrected by Holm over these claims."""
    claims = [{**claim, "comparisons": [compare(arms, each) for each in claim["comparisons"]]} for claim in asked]
    complete = [claim for claim in claims if all(is_complete(each, finished) for each in claim["comparisons"])]
    largest = [max(each["p"] for each in claim["comparisons"]) for claim in complete]
    for claim, corrected in zip(complete, holm(largest), strict=True):
        claim["p_corrected"] = corrected
        claim["verdict"] = verdict(claim["comparisons"], corrected)
    return [{"verdict": "incomplete", **claim} for claim in claims]


def is_complete(comparison: Mapping[str, Any], finished: Collection[str]) -> bool:
    arms = {comparison["arm"], comparison["against"]} if isinstance(comparison["against"], str) else {comparison["arm"]}
    return "interval_95" in comparison and arms <= set(finished)


def compare(arms: Mapping[str, Arm], comparison: Mapping[str, Any]) -> dict[str, Any]:
    """Return effect, interval and p of a comparison; none where runs are missing."""
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
    low, high = np.quantile(differences(ours, theirs), (LEVEL / 2, 1 - LEVEL / 2))
    return {
        **comparison, "runs": [len(ours.values), len(theirs.values)], "accuracy": ours.rows is not None,
        "effect": rounded(ours.values.mean() - theirs.values.mean()), "interval_95": [rounded(low), rounded(high)], "p": float(test.pvalue),
    }  # fmt: skip


def differences(ours: Observations, theirs: Observations) -> Values:
    """Draw runs, and problems within their groups, again and again: differences of means. The problems are the same for both arms."""
    rng = stream(0, "claims", "bootstrap")
    if ours.rows is None:
        return drawn_means(ours.values, rng) - drawn_means(theirs.values, rng)
    if theirs.rows is None:
        theirs = Observations(theirs.values, np.full((1, ours.rows.shape[1]), theirs.values[0]), ours.groups)
    weights = [
        rng.multinomial(len(run_values), [1 / len(run_values)] * len(run_values), DRAWS) for run_values in (ours.values, theirs.values)
    ]
    total = np.zeros(DRAWS)
    for places in ours.groups:
        counts = rng.multinomial(len(places), [1 / len(places)] * len(places), DRAWS)
        for sign, arm, chosen in ((1, ours, weights[0]), (-1, theirs, weights[1])):
            rows = arm.rows[:, places]  # type: ignore[index] - both have rows here
            kept = ~np.isnan(rows)
            of_run = (counts @ np.nan_to_num(rows).T) / np.maximum(counts @ kept.T, 1)  # [draws, runs]
            total += sign * (chosen * of_run).sum(1) / chosen.sum(1)
    return total / len(ours.groups)


def drawn_means(values: Values, rng: np.random.Generator) -> Values:
    return values[rng.integers(0, len(values), (DRAWS, len(values)))].mean(1)


def verdict(comparisons: Sequence[Mapping[str, Any]], corrected: float) -> str:
    """Say ``holds``, ``does not`` or ``unclear`` by the protocol's rule."""
    signed = [
        (*sorted(bound * (1 if each["sign"] == "+" else -1) for bound in each["interval_95"]), each["accuracy"]) for each in comparisons
    ]
    if all(low > 0 for low, _, _ in signed) and corrected < LEVEL:
        return "holds"
    return "does not" if any(high < (MARGIN if accuracy else 0.0) for _, high, accuracy in signed) else "unclear"


def summary(observed: Observations) -> dict[str, float]:
    values = observed.values
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return {"mean": rounded(values.mean()), "sd": rounded(spread), "runs": len(values)}


def rounded(value: float) -> float:
    return round(float(value), 5)


def table(claims: Sequence[Mapping[str, Any]]) -> str:
    """Return Markdown: a row for each comparison, the verdict at the first of a claim."""
    lines = ["| | claim | verdict | comparison | effect [95 %] | p, corrected |", "|---" * 6 + "|"]
    for claim in claims:
        for index, each in enumerate(claim["comparisons"]):
            first = (claim["id"], claim["text"], f"**{claim['verdict']}**") if index == 0 else ("", "", "")
            against = f"− {each['against']}" if isinstance(each["against"], str) else f"against {each['against']:g}"
            effect = "{:+.3f} [{:+.3f}, {:+.3f}]".format(each["effect"], *each["interval_95"]) if "effect" in each else "–"
            corrected = f"{claim['p_corrected']:.2g}" if index == 0 and "p_corrected" in claim else ""
            cells = (*first, f"{each['measure']}: {each['arm']} {against} ({each['sign']})", effect, corrected)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
