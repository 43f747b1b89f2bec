"""The reasons of rejected proposals and failed answers, recounted from the tables."""

from collections import Counter
from dataclasses import replace
from statistics import fmean

import pytest
from report_runs import CONFIG, figure_of, logged, study_of, table, write_run

from populora.core.types import Attempt
from populora.report.figures.failure_reasons import COLOURED, reasons_figure


def test_shares_by_reason_are_recounted(runs):
    figure = figure_of(reasons_figure, study_of(runs["pair"], runs["agent"]))
    shares = {(row["run"], row["side"], row["reason"], row["step"]): row["share"] for row in figure.rows if row["share"]}
    expected: dict[tuple, float] = {}
    for run in ("pair", "agent"):
        for step in range(1, 7):
            proposals = table(runs[run], "proposals", step)
            counted = [row for row in table(runs[run], "attempts", step) if not row["void"] and not row["filled"]]
            lost = (("proposals rejected", proposals, [row["rejection"] for row in proposals if not row["valid"]]),
                    ("answers failed", counted, [row["reason"] for row in counted if not row["correct"]]))  # fmt: skip
            for side, all_of_them, reasons in lost:
                for reason, count in Counter(":".join(reason.split(":")[:2]) for reason in reasons).items():
                    expected[run, side, reason, step] = count / len(all_of_them)
    assert shares == pytest.approx(expected) and "error:exception" in {key[2] for key in shares}


def test_arms_with_runs_of_different_reasons_are_drawn_up_to_the_end_of_the_shorter_run(tmp_path, runs, make_record):
    """A reason that the shorter run lacks counts there as 0. Beyond its end the mean would jump to that of the longer one."""
    many = [f"reason_{index:02d}" for index in range(COLOURED + 3)]

    def make(step: int, **fields):
        attempts: list[Attempt] = list(fields["attempts"])
        wrong = [index for index, attempt in enumerate(attempts) if attempt.reason and not attempt.void]
        for number, index in enumerate(wrong):
            attempts[index] = attempts[index]._replace(reason=many[number % len(many)])
        return make_record(step, **{**fields, "attempts": tuple(attempts)})

    write_run(tmp_path / "long", make, replace(CONFIG, seed=5), steps=8)
    figure = figure_of(reasons_figure, study_of(tmp_path / "long", runs["pair"]))
    axis = figure.draw().axes[1]
    labels = [collection.get_label() for collection in axis.collections]
    assert len(labels) == COLOURED + 1 and labels[-1] == "others"
    top = axis.collections[-1].get_paths()[0].vertices
    logs = {name: logged(folder) for name, folder in (("long", tmp_path / "long"), ("pair", runs["pair"]))}
    failed = {name: [1 - line["student/solve_rate"] for line in log] for name, log in logs.items()}
    assert top[:, 0].max() == len(failed["pair"]) < 8
    for step in range(1, 1 + len(failed["pair"])):
        means = [fmean(values[max(0, step - 5) : step]) for values in failed.values()]
        assert max(top[top[:, 0] == step, 1]) == pytest.approx(fmean(means))
