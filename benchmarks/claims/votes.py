"""Compute what a vote over several solvers gains over one solver that answers as often, by the protocol's `vote_gain`."""

from collections.abc import Sequence

import numpy as np
from benchmarks.claims.measures import MeasuredRun, Suite, Values, proposed
from benchmarks.claims.suites import SAMPLES

from populora.core.types import TaskType


def vote_gain(runs: Sequence[MeasuredRun], suite: Suite) -> Values:
    """Verdict of a vote over 16 answers of all solvers, less the mean verdict of votes over 16 of one, for each problem of code_o. It is
    NaN where a teacher proposed the problem."""
    rows = [row for run in runs for row in run.answers if row["suite"] == "vote"]
    answers = np.array([row["answers"] for row in rows]).reshape(len(rows), -1, SAMPLES)
    correct = np.array([row["correct"] for row in rows]).reshape(answers.shape)
    share = SAMPLES // len(rows)
    together = vote(np.concatenate(list(answers[:, :, :share]), 1), np.concatenate(list(correct[:, :, :share]), 1))
    gain = together - np.mean([vote(*solver) for solver in zip(answers, correct, strict=True)], 0)
    left_out = np.isin(np.arange(len(suite.problems)), proposed(runs, "test"))
    return np.where(left_out[[problem.task is TaskType.CODE_O for problem in suite.problems]], np.nan, gain)


def vote(answers: Values, correct: Values) -> Values:
    """Verdicts of the most frequent answer of each problem, the earliest of equally frequent ones. ``answers`` are numbers, 0 none."""
    verdicts = np.zeros(len(answers))
    for problem, (given, right) in enumerate(zip(answers, correct, strict=True)):
        names, first, counts = np.unique(given[given > 0], return_index=True, return_counts=True)
        if len(names):
            winner = names[np.lexsort((first, -counts))[0]]
            verdicts[problem] = right[given == winner][0]
    return verdicts
