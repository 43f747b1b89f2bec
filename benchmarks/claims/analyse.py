"""Compute every measure and verdict of the claims campaign from `measured/`, by `protocol.toml`.

    python -m benchmarks.claims.analyse       writes results.json; `page.py` makes the page of it

A claim whose arms lack planned runs is incomplete and has no verdict.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from benchmarks.claims.dynamics import scalars
from benchmarks.claims.measures import MeasuredRun, Suite, Values, accuracies, read_runs, read_soups, read_suites, vote_gain
from benchmarks.claims.protocol import PROTOCOL, planned_soups
from benchmarks.claims.verdicts import Arm, Observations, judge, rounded, shares, summary
from benchmarks.measuring import options, write_results

from populora.core.types import TaskType

HERE = Path(__file__).parent


def main() -> None:
    args = options(__doc__, HERE).parse_args()
    suites = read_suites()
    runs = read_runs(args.out / "measured")
    arms = {arm: observe([[run] for run in of_arm], suites) for arm, of_arm in runs.items()}
    for name, derived in PROTOCOL["derived"].items():
        arms[name] = observe(in_groups(runs[derived["of"]], derived["size"]), suites)
    soups = read_soups(args.out / "measured", chain.from_iterable(runs.values()))
    arms |= {arm: observe_soups(of_arm, suites) for arm, of_arm in soups.items()}
    planned = planned_observations()
    made = {arm: len(of_arm) for arm, of_arm in {**runs, **soups}.items()}
    made |= {name: len(runs[derived["of"]]) // derived["size"] for name, derived in PROTOCOL["derived"].items()}
    counts = {arm: [made.get(arm, 0), number] for arm, number in planned.items()}
    claims = judge(arms, planned)
    sampled = {arm: rounded(np.mean([run.sampled.sum() for run in of_arm]) / 1e6) for arm, of_arm in runs.items()}
    results = {"runs": counts, "sampled_millions": sampled, "left_out": left_out(runs), "claims": claims, "means": means_of(arms, planned)}
    write_results(args.out / "results.json", results)


def planned_observations() -> dict[str, int]:
    """Count the observations of each arm that the protocol asks for."""
    planned = {arm: settings["seeds"] for arm, settings in PROTOCOL["arms"].items()}
    planned |= {name: planned[derived["of"]] // derived["size"] for name, derived in PROTOCOL["derived"].items()}
    return planned | Counter(soup.arm for soup in planned_soups() if soup.arm in PROTOCOL["soups"])


def in_groups(runs: Sequence[MeasuredRun], size: int) -> list[list[MeasuredRun]]:
    return [list(runs[start : start + size]) for start in range(0, len(runs) - size + 1, size)]


def observe(groups: Sequence[Sequence[MeasuredRun]], suites: Mapping[str, Suite]) -> Arm:
    """Compute the measures of an arm; each group of runs is one observation. Without a group there are none."""
    if not groups:
        return {}
    test, arm = suites["test"], solved([accuracies(group, suites) for group in groups], suites)
    single = all(len(group) == 1 for group in groups)
    if single and all(sum(row["suite"] == "vote" for row in group[0].answers) > 1 for group in groups):
        asked = [problem for problem in test.problems if problem.task is TaskType.CODE_O]
        arm["vote_gain"] = shares(np.array([vote_gain(group) for group in groups]), Suite(asked).groups)
    if single:
        of_runs = [scalars(group[0], suites) for group in groups]
        for name in sorted({name for values in of_runs for name in values}):
            arm[name] = Observations(np.array([values[name] for values in of_runs if name in values]))
    return arm


def observe_soups(soups: Sequence[tuple[MeasuredRun, Sequence[MeasuredRun]]], suites: Mapping[str, Suite]) -> Arm:
    """Compute what soups solve, and how much more than the solvers that they were made of."""
    rows = [accuracies([soup], suites) for soup, _ in soups]
    gains = [of_soup["test"] - accuracies(sources, suites)["test"] for of_soup, (_, sources) in zip(rows, soups, strict=True)]
    return {**solved(rows, suites), "gain": shares(np.array(gains), suites["test"].groups)}


def solved(rows: Sequence[Mapping[str, Values]], suites: Mapping[str, Suite]) -> Arm:
    """Put the rows of an arm's observations together, by measure, and those of the test suite by level, too."""
    arm: Arm = {}
    for name in rows[0]:
        places = suites["transfer"].groups if name == "transfer" else suites["test"].groups
        arm[name] = shares(np.array([of_group[name] for of_group in rows]), places)
    for level, places in enumerate(suites["test"].groups, start=1):
        arm[f"test/{level}"] = shares(np.array([of_group["test"] for of_group in rows]), [places])
    return arm


def left_out(runs: Mapping[str, Sequence[MeasuredRun]]) -> dict[str, dict[str, list[int]]]:
    """Count the problems of each suite that a run's teachers proposed, for each run of an arm."""
    suites = {suite for of_arm in runs.values() for run in of_arm for suite in run.facts["contaminated"]}
    return {
        suite: {arm: [len(run.facts["contaminated"][suite]) for run in of_arm] for arm, of_arm in runs.items()} for suite in sorted(suites)
    }


def means_of(arms: Mapping[str, Arm], planned: Mapping[str, int]) -> dict[str, dict[str, dict[str, float]]]:
    """Summarise the measures of the arms that have all their runs. Of a measure of training, some of these may have no value."""
    complete = {arm: measures for arm, measures in arms.items() if "test" in measures and len(measures["test"].values) == planned[arm]}
    return {arm: {name: summary(observed) for name, observed in measures.items()} for arm, measures in complete.items()}


if __name__ == "__main__":
    main()
