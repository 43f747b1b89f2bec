"""Compute every measure and verdict of the claims campaign from `measured/`, by `protocol.toml`.

    python -m benchmarks.claims.analyse       writes results.json and means.csv; `page.py` makes the page of them

A claim whose arms lack planned runs is incomplete and has no verdict.
"""

import csv
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.claims.dynamics import scalars, specialisation
from benchmarks.claims.measures import (
    MeasuredRun,
    Soup,
    Suite,
    Values,
    accuracies,
    read_runs,
    read_soups,
    read_suites,
    weakest_validity,
)
from benchmarks.claims.protocol import PROTOCOL, planned_soups
from benchmarks.claims.verdicts import Arm, Observations, judge, shares, summary
from benchmarks.claims.votes import vote_gain
from benchmarks.measuring import options, write_results

from populora.core.types import TaskType

HERE = Path(__file__).parent
MEANS = ("arm", "measure", "mean", "sd", "values")


def main() -> None:
    args = options(__doc__, HERE).parse_args()
    runs = read_runs(args.out / "measured")
    arms, planned = observe_arms(runs, args.out / "measured"), planned_observations()
    write_results(args.out / "results.json", {**counts_of(runs, arms, planned), "claims": judge(arms, planned)})
    write_means(args.out / "means.csv", means_of(arms, planned))


def observe_arms(runs: Mapping[str, Sequence[MeasuredRun]], folder: Path) -> dict[str, Arm]:
    """Compute the measures of all arms, of the derived ones and of the soups in ``folder``, too."""
    suites = read_suites()
    arms = {arm: observe([[run] for run in of_arm], suites) for arm, of_arm in runs.items()}
    for name, derived in PROTOCOL["derived"].items():
        arms[name] = observe(in_groups(runs[derived["of"]], derived), suites)
    soups = read_soups(folder, chain.from_iterable(runs.values()))
    return arms | {arm: observe_soups(of_arm, suites) for arm, of_arm in soups.items()}


def counts_of(runs: Mapping[str, Sequence[MeasuredRun]], arms: Mapping[str, Arm], planned: Mapping[str, int]) -> dict[str, Any]:
    """Count each arm's observations, beside the planned ones, and the problems that its runs leave out."""
    counts = {arm: [len(arms[arm]["test"].values) if arms.get(arm) else 0, number] for arm, number in planned.items()}
    return {"runs": counts, "left_out": left_out(runs)}


def planned_observations() -> dict[str, int]:
    """Count the observations of each arm that the protocol asks for."""
    planned = {arm: settings["seeds"] for arm, settings in PROTOCOL["arms"].items()}
    planned |= {name: (planned[derived["of"]] - derived["first"]) // derived["size"] for name, derived in PROTOCOL["derived"].items()}
    return planned | Counter(soup.arm for soup in planned_soups() if soup.arm in PROTOCOL["soups"])


def in_groups(runs: Sequence[MeasuredRun], derived: Mapping[str, Any]) -> list[list[MeasuredRun]]:
    """Group runs, which are in the order of their seeds, from the ``first`` one on."""
    first, size = derived["first"], derived["size"]
    return [list(runs[start : start + size]) for start in range(first, len(runs) - size + 1, size)]


def observe(groups: Sequence[Sequence[MeasuredRun]], suites: Mapping[str, Suite]) -> Arm:
    """Compute the measures of an arm; each group of runs is one observation. Without a group there are none."""
    if not groups:
        return {}
    test, arm = suites["test"], solved([accuracies(group, suites) for group in groups], suites)
    arm["sampled"] = Observations(np.array([sum(run.sampled.sum() for run in group) for group in groups]) / 1e6)
    arm["least_valid"] = Observations(np.array([min(weakest_validity(run) for run in group) for group in groups]))
    if all(sum(len(run.greedy("test")) for run in group) > 1 for group in groups):
        types = [problem.task for problem in test.problems]
        solvers = [np.concatenate([run.greedy("test") for run in group]) for group in groups]
        arm["specialisation"] = Observations(np.array([specialisation(verdicts, types) for verdicts in solvers]))
    single = all(len(group) == 1 for group in groups)
    if single and all(sum(row["suite"] == "vote" for row in group[0].answers) > 1 for group in groups):
        asked = [problem for problem in test.problems if problem.task is TaskType.CODE_O]
        arm["vote_gain"] = shares(np.array([vote_gain(group, test) for group in groups]), Suite(asked).groups)
    if single:
        of_runs = [scalars(group[0]) for group in groups]
        for name in sorted({name for values in of_runs for name in values}):
            arm[name] = Observations(np.array([values[name] for values in of_runs if name in values]))
    return arm


def observe_soups(soups: Sequence[Soup], suites: Mapping[str, Suite]) -> Arm:
    """Compute what soups solve, and how much more than the solvers that they were made of."""
    rows, groups = [accuracies([soup.solver], suites) for soup in soups], suites["test"].groups
    sources = [accuracies(soup.runs, suites) for soup in soups]
    gain, ahead = (
        np.array([of_soup["test"] - of_runs[measure] for of_soup, of_runs in zip(rows, sources, strict=True)])
        for measure in ("test", "chosen")
    )
    uncut = np.array([accuracies([soup.uncut], suites)["test"] for soup in soups])
    sampled = Observations(np.array([sum(run.sampled.sum() for run in soup.runs) for soup in soups]) / 1e6)
    more = {"gain": shares(gain, groups), "ahead": shares(ahead, groups), "uncut": shares(uncut, groups), "sampled": sampled}
    return solved(rows, suites) | more


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


def write_means(path: Path, means: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    """Write a row for each measure of an arm, with the values of its runs in the order of their seeds."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(MEANS)
        for arm, measures in means.items():
            rows.writerows((arm, name, each["mean"], each["sd"], " ".join(map(str, each["values"]))) for name, each in measures.items())


def read_means(path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    means: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            values = [float(value) for value in row["values"].split()]
            means[row["arm"]][row["measure"]] = {"mean": float(row["mean"]), "sd": float(row["sd"]), "values": values}
    return dict(means)


if __name__ == "__main__":
    main()
