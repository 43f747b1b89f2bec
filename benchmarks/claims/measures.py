"""Compute the protocol's measures of a run from its two files. Accuracies stay rows of problems, so that these can be drawn again."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from benchmarks.claims.protocol import PROTOCOL
from benchmarks.claims.suites import SAMPLES, read_suite

from populora.core.rng import stream
from populora.core.types import Problem, TaskType

Values = np.ndarray
LAST: int = PROTOCOL["last"]
CURVES = ("solve_rate", "difficulty", "loc", "cyclomatic", "ast_depth", "variables", "response_length", "entropy", "validity")
STUDENTS = {"solve_rate", "response_length"}
"""Curves of students; the others are of teachers."""
RECOVERY, NEAR, WINDOW = 20, 0.05, 5


@dataclass(frozen=True)
class Suite:
    """Problems in groups of equal weight: levels of the test suite, families of the transfer suite."""

    problems: Sequence[Problem]

    @cached_property
    def groups(self) -> list[Values]:
        """Places of each group's problems."""
        names = [problem.author for problem in self.problems]
        return [np.array([place for place, name in enumerate(names) if name == group]) for group in dict.fromkeys(names)]


@dataclass(frozen=True)
class MeasuredRun:
    """The two files of a run."""

    name: str
    facts: dict[str, Any]
    curves: Mapping[str, Values]
    answers: list[dict[str, Any]]

    @property
    def steps(self) -> int:
        return len(self.curves["seconds"])

    @property
    def sampled(self) -> Values:
        """Tokens sampled in each step."""
        return self.curves["tokens/propose"] + self.curves["tokens/solve"]

    def greedy(self, suite: str, step: int | None = None) -> Values:
        """Verdicts [solvers, problems] at a snapshot, by default the last; NaN where the program was proposed in training."""
        at = step or self.steps
        rows = np.array([row["correct"] for row in self.answers if row["suite"] == suite and row["step"] == at], dtype=float)
        rows[:, self.facts["contaminated"][suite]] = np.nan
        return rows


def read_run(file: Path) -> MeasuredRun:
    """Read ``NAME.parquet`` and the answers beside it."""
    table = pq.read_table(file)
    facts = {name.decode(): json.loads(value) for name, value in (table.schema.metadata or {}).items()}
    curves = {name: np.array(table[name].to_pylist(), dtype=float) for name in table.column_names}
    return MeasuredRun(file.stem, facts, curves, pq.read_table(file.with_suffix(".answers.parquet")).to_pylist())


def read_runs(folder: Path) -> dict[str, list[MeasuredRun]]:
    """Read the runs of a folder by arm, each arm's in the order of its seeds."""
    runs = [read_run(file) for file in folder.glob("*.parquet") if ".answers" not in file.name]
    arms: dict[str, list[MeasuredRun]] = {}
    for run in sorted(runs, key=lambda run: (int(run.name.rpartition("-")[2]), run.name)):
        arms.setdefault(run.name.rpartition("-")[0], []).append(run)
    return arms


def accuracies(runs: Sequence[MeasuredRun], suites: Mapping[str, Suite], step: int | None = None) -> dict[str, Values]:
    """Compute the measures that are shares of problems, each a row over a suite's problems. Several runs are one group of agents."""
    test, transfer, validation = (np.concatenate([run.greedy(name, step) for run in runs]) for name in ("test", "transfer", "validation"))
    of_solver = [grouped(row, suites["test"].groups) for row in test]
    rows = {
        "test": mean_known(test),
        "transfer": mean_known(transfer),
        "weakest": test[int(np.argmin(of_solver))],
        "union": np.fmax.reduce(test, axis=0),
    }
    return rows if step else {**rows, "chosen": test[int(np.argmax(np.nanmean(validation, 1)))]}


def mean_known(rows: Values) -> Values:
    """Mean over solvers of each problem that is counted for one of them; NaN for the others."""
    known = ~np.isnan(rows)
    return np.where(known.any(0), np.nan_to_num(rows).sum(0) / np.maximum(known.sum(0), 1), np.nan)


def grouped(row: Values, groups: Iterable[Values]) -> float:
    """Mean over groups of the mean over their problems."""
    return float(np.mean([np.nanmean(row[places]) for places in groups]))


def vote_gain(runs: Sequence[MeasuredRun]) -> Values:
    """Verdict of a vote over 16 answers of all solvers, less the mean verdict of votes over 16 of one, for each problem of code_o."""
    rows = [row for run in runs for row in run.answers if row["suite"] == "vote"]
    answers = np.array([row["answers"] for row in rows]).reshape(len(rows), -1, SAMPLES)
    correct = np.array([row["correct"] for row in rows]).reshape(answers.shape)
    share = SAMPLES // len(rows)
    together = vote(np.concatenate(list(answers[:, :, :share]), 1), np.concatenate(list(correct[:, :, :share]), 1))
    return together - np.mean([vote(*solver) for solver in zip(answers, correct, strict=True)], 0)


def vote(answers: Values, correct: Values) -> Values:
    """Verdicts of the most frequent answer of each problem, the earliest of equally frequent ones. ``answers`` are numbers, 0 none."""
    verdicts = np.zeros(len(answers))
    for problem, (given, right) in enumerate(zip(answers, correct, strict=True)):
        names, first, counts = np.unique(given[given > 0], return_index=True, return_counts=True)
        if len(names):
            winner = names[np.lexsort((first, -counts))[0]]
            verdicts[problem] = right[given == winner][0]
    return verdicts


def scalars(run: MeasuredRun, suites: Mapping[str, Suite]) -> dict[str, float]:
    """Compute the measures of training, and those of several solvers."""
    values: dict[str, float] = {}
    for name in CURVES:
        curve = run.curves[f"{'student' if name in STUDENTS else 'teacher'}/{name}"]
        values[name] = float(np.nanmean(curve[-LAST:]))
        values[f"{name}/change"] = values[name] - float(np.nanmean(curve[:LAST]))
    values["oscillation"] = oscillation(run.curves["student/solve_rate"])
    values["coverage_rate"] = coverage_rate(run.curves)
    values["weakest_validity"] = weakest_validity(run)
    if "matchup/student_wins" in run.curves:
        values["lead_changes"] = lead_changes(run.curves["matchup/student_wins"])
    verdicts = run.greedy("test")
    if len(verdicts) > 1:
        types = [problem.task for problem in suites["test"].problems]
        values["specialisation"] = specialisation(verdicts, types)
    if children := run.facts["children"]:
        values |= recovery(children, run.curves)
    return values


def weakest_validity(run: MeasuredRun) -> float:
    """Share of valid proposals in the last steps, of the teacher and type that has the lowest."""
    validity = [curve for name, curve in run.curves.items() if name.startswith("teacher/validity/") and "code" in name]
    return min(float(np.nanmean(curve[-LAST:])) for curve in validity)


def oscillation(curve: Values, width: int = 21) -> float:
    """Standard deviation around the running mean, without the first ``width - 1`` steps, in which all arms change."""
    smooth = np.convolve(curve, np.ones(width) / width, mode="valid")
    inner = curve[width // 2 : len(curve) - width // 2] - smooth
    return float(np.std(inner[width // 2 :]))


def lead_changes(student_wins: Values, width: int = 5) -> float:
    smooth = np.convolve(np.nan_to_num(student_wins, nan=0.5), np.ones(width) / width, mode="valid")
    leads = np.sign(smooth - 0.5)
    leads = leads[leads != 0]
    return float(np.sum(leads[1:] != leads[:-1]))


def coverage_rate(curves: Mapping[str, Values], span: int = 50) -> float:
    """New cells a program in the last steps, by that of the first ones. Programs are those that the archive counts."""
    cells, programs = curves["archive/coverage"], curves["archive/total_problems"]
    late = (cells[-1] - cells[-1 - span]) / (programs[-1] - programs[-1 - span])
    return float(late / (cells[span - 1] / programs[span - 1]))


def specialisation(verdicts: Values, types: Sequence[TaskType], splits: int = 200) -> float:
    """Variance between solvers of what is left of their accuracies by type without the solver's and the type's mean.

    Two halves of the problems estimate it apart, and their product has the variance as its mean, whatever the noise of a half.
    """
    rng, names = stream(0, "claims", "specialisation"), list(dict.fromkeys(types))
    places = [np.flatnonzero([task is name for task in types]) for name in names]
    products = []
    for _ in range(splits):
        halves: list[list[Values]] = [[], []]
        for of_type in places:
            shuffled = rng.permutation(of_type)
            for half, part in zip(halves, np.array_split(shuffled, 2), strict=True):
                half.append(np.nanmean(verdicts[:, part], 1))
        first, second = (_interaction(np.array(half).T) for half in halves)
        products.append(np.sum(first * second))
    solvers, kinds = len(verdicts), len(names)
    return float(np.mean(products) / ((solvers - 1) * (kinds - 1)))


def _interaction(table: Values) -> Values:
    return table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()


def recovery(children: Sequence[Mapping[str, Any]], curves: Mapping[str, Values]) -> dict[str, float]:
    """Share of children that recover, the median of their steps, and the share of crossovers that keep what each parent is better at."""
    steps = len(curves["seconds"])
    born = {(child["member"], child["born"]) for child in children}
    judged = [child for child in children if child["born"] + RECOVERY <= steps]
    times = [time for child in judged if (time := steps_to_recover(child, born, curves)) is not None]
    kept = [keeps_both(child, curves) for child in judged if len(child["parents"]) > 1 and child["member"][0] == "S"]
    values = {"recovered": float(np.mean([time <= RECOVERY for time in times]))} if times else {}
    if times:
        values["recovery_steps"] = float(np.median(times))
    return values | ({"both_kept": float(np.mean(kept))} if kept else {})


def steps_to_recover(child: Mapping[str, Any], born: set[tuple[str, int]], curves: Mapping[str, Values]) -> float | None:
    """First step after birth at which a child's mean of 5 steps is near its older peers'; infinite if none of the first 20 is."""
    member, start = child["member"], child["born"]
    measure = "student/solve_rate" if member[0] == "S" else "teacher/reward"
    peers = [
        name.rpartition("/")[2]
        for name in curves
        if name.startswith(f"{measure}/{member[0]}") and name.count("/") == 2 and name != f"{measure}/{member}"
    ]
    older = [peer for peer in peers if not any((peer, step) in born for step in range(start - RECOVERY, start + RECOVERY + 1))]
    if not older:
        return None
    window = slice(start, start + RECOVERY)
    mine = curves[f"{measure}/{member}"][window]
    theirs = np.nanmean([curves[f"{measure}/{peer}"][window] for peer in older], 0)
    for end in range(WINDOW, RECOVERY + 1):
        if np.nanmean(mine[end - WINDOW : end]) >= np.nanmean(theirs[end - WINDOW : end]) - NEAR:
            return float(end)
    return float("inf")


def keeps_both(child: Mapping[str, Any], curves: Mapping[str, Values]) -> bool:
    """Tell whether a student has 95 % of each parent's solve rate, in the type in which that parent is ahead of the other."""
    window = slice(child["born"] + 10, child["born"] + RECOVERY)

    def rates(member: str) -> dict[str, float]:
        return {task: float(np.nanmean(curves[f"student/solve_rate/{member}/{task}"][window])) for task in ("code_i", "code_o", "code_f")}

    first, second = (rates(parent.partition("#")[0]) for parent in child["parents"])
    ours = rates(child["member"])
    best = [max(first, key=lambda task: first[task] - second[task]), max(first, key=lambda task: second[task] - first[task])]
    return all(ours[task] >= 0.95 * parent[task] for task, parent in zip(best, (first, second), strict=True))


def read_suites() -> dict[str, Suite]:
    return {name: Suite(read_suite(name)) for name in ("test", "transfer")}
