"""Read the two files of a run, and compute the protocol's measures that are shares of problems.

They stay rows of problems, so that these can be drawn again. The measures of training are in `dynamics.py`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from benchmarks.claims.protocol import PROTOCOL, planned_soups
from benchmarks.claims.suites import read_suite

from populora.core.types import Problem

Values = np.ndarray
LAST: int = PROTOCOL["last"]


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


class Soup(NamedTuple):
    """What one adapter from several answered, at their rank and ``uncut``, at the rank of all together; and the ``runs`` that made them."""

    solver: MeasuredRun
    uncut: MeasuredRun
    runs: list[MeasuredRun]


def read_soups(folder: Path, runs: Iterable[MeasuredRun], part: str = "") -> dict[str, list[Soup]]:
    """Read what soups answered, by arm. A soup leaves out what any of its runs proposed.

    ``folder`` has the measured runs of all parts, ``runs`` are those of one, whose arms begin with ``part``.
    """
    known = {f"{part}{run.name}": run for run in runs}
    arms: dict[str, list[Soup]] = {}
    for soup in planned_soups():
        file = folder / "soups" / f"{soup.name}.answers.parquet"
        if file.exists() and all(name in known for name in soup.runs):
            sources = [known[name] for name in soup.runs]
            facts = {"contaminated": {suite: proposed(sources, suite) for suite in sources[0].facts["contaminated"]}}
            rows = pq.read_table(file).to_pylist()
            solver, uncut = (
                MeasuredRun(soup.name, facts, {"seconds": np.zeros(0)}, [row for row in rows if row["member"] == member])
                for member in ("soup", "uncut")
            )
            arms.setdefault(soup.arm, []).append(Soup(solver, uncut, sources))
    return arms


def accuracies(runs: Sequence[MeasuredRun], suites: Mapping[str, Suite], step: int | None = None) -> dict[str, Values]:
    """Compute the measures that are shares of problems, each a row over a suite's problems. Several runs are one group of agents, of which
    all leave out what any of them proposed."""
    test, transfer = (np.concatenate([run.greedy(name, step) for run in runs]) for name in ("test", "transfer"))
    test[:, proposed(runs, "test")] = transfer[:, proposed(runs, "transfer")] = np.nan
    of_solver = [grouped(row, suites["test"].groups) for row in test]
    rows = {
        "test": mean_known(test),
        "transfer": mean_known(transfer),
        "weakest": test[int(np.argmin(of_solver))],
        "union": np.fmax.reduce(test, axis=0),
    }
    return rows if step else {**rows, "chosen": test[int(np.argmax(validation_accuracies(runs, proposed(runs, "validation"))))]}


def proposed(runs: Iterable[MeasuredRun], suite: str) -> list[int]:
    """Places of the suite's problems that a teacher of any of the runs proposed."""
    return sorted({place for run in runs for place in run.facts["contaminated"][suite]})


def validation_accuracies(runs: Sequence[MeasuredRun], left_out: Sequence[int]) -> Values:
    """Accuracy of each solver of the runs on the validation suite, without the problems in ``left_out``: the same ones for all."""
    return np.delete(np.concatenate([run.greedy("validation") for run in runs]), left_out, axis=1).mean(1)


def weakest_validity(run: MeasuredRun) -> float:
    """Share of valid proposals in the last steps, of the teacher and type that has the lowest."""
    validity = [curve for name, curve in run.curves.items() if name.startswith("teacher/validity/") and "code" in name]
    return min(float(np.nanmean(curve[-LAST:])) for curve in validity)


def mean_known(rows: Values) -> Values:
    """Mean over solvers of each problem that is counted for one of them; NaN for the others."""
    known = ~np.isnan(rows)
    return np.where(known.any(0), np.nan_to_num(rows).sum(0) / np.maximum(known.sum(0), 1), np.nan)


def grouped(row: Values, groups: Iterable[Values]) -> float:
    """Mean over groups of the mean over their problems."""
    return float(np.mean([np.nanmean(row[places]) for places in groups]))


def read_suites() -> dict[str, Suite]:
    return {name: Suite(read_suite(name)) for name in ("test", "transfer")}
