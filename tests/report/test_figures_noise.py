"""The noise of rho, and why proposals and answers failed, recounted from the tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import fmean, variance

import numpy as np
import pytest
from report_runs import CONFIG, K, figure_of, logged, study_of, table, write_run

from populora.core.types import Attempt
from populora.report.figures.training_signal import COLOURED, noise_figure, reasons_figure
from populora.report.rendering import draw


def test_noise_is_recounted_from_the_samples_of_every_problem(runs):
    figure = figure_of(noise_figure, study_of(runs["pair"], runs["pair-1"], runs["agent"]))
    assert len(figure.rows) == 18
    assert "here K = 4 (baseline (1 agent)), 4 (2T+2S)" in figure.definition
    for row in figure.rows:
        rhos = [one["rho"] for one in table(runs[row["run"]], "proposals", row["step"]) if one["rho"] is not None]
        correct = [round(rho * K) for rho in rhos]
        # The unbiased variance of K Bernoulli draws, over K: of their mean.
        chance = fmean(variance([1.0] * right + [0.0] * (K - right)) / K for right in correct)
        spread = variance(rhos) if len(rhos) > 1 else 0
        assert row["problems"] == len(rhos) and row["standard_error"] == pytest.approx(chance**0.5)
        assert row["chance"] == (pytest.approx(min(1.0, chance / spread)) if spread else None)
        assert row["barely"] == pytest.approx(correct.count(1) / len(rhos))
        assert row["counts"] == " ".join(str(Counter(correct)[right]) for right in range(K + 1))


def test_the_distribution_at_the_end_is_that_of_the_last_tenth(runs):
    figure = figure_of(noise_figure, study_of(runs["pair"], runs["pair-1"]))
    rhos = [one["rho"] for name in ("pair", "pair-1") for one in table(runs[name], "proposals", 6) if one["rho"] is not None]
    (line,) = draw(figure).axes[3].lines
    expected = [[right / K, rhos.count(right / K) / len(rhos)] for right in range(K + 1)]
    np.testing.assert_allclose(np.asarray(line.get_xydata()), expected)


def test_shares_by_reason_are_recounted(runs):
    figure = figure_of(reasons_figure, study_of(runs["pair"], runs["agent"]))
    found = {(row["run"], row["side"], row["reason"], row["step"]): row["share"] for row in figure.rows if row["share"]}
    expected: dict[tuple, float] = {}
    for run in ("pair", "agent"):
        for step in range(1, 7):
            proposals = table(runs[run], "proposals", step)
            counted = [row for row in table(runs[run], "attempts", step) if not row["void"] and not row["filled"]]
            lost = (("proposals rejected", proposals, [row["rejection"] for row in proposals if not row["valid"]]),
                    ("answers failed", counted, [row["reason"] for row in counted if not row["correct"]]))  # fmt: skip
            for side, all_of_them, reasons in lost:
                for reason, count in Counter(":".join(one.split(":")[:2]) for one in reasons).items():
                    expected[run, side, reason, step] = count / len(all_of_them)
    assert found == pytest.approx(expected) and "error:exception" in {key[2] for key in found}


def test_arms_with_runs_of_different_length_and_reasons_are_drawn_over_all_steps(tmp_path, runs, make_record):
    """A reason that the shorter run lacks counts there as 0, and beyond its end the mean is that of the longer one."""
    many = [f"reason_{index:02d}" for index in range(COLOURED + 3)]

    def make(step: int, **fields):
        attempts: list[Attempt] = list(fields["attempts"])
        wrong = [index for index, one in enumerate(attempts) if one.reason and not one.void]
        for place, index in enumerate(wrong):
            attempts[index] = replace(attempts[index], reason=many[place % len(many)])
        return make_record(step, **{**fields, "attempts": tuple(attempts)})

    write_run(tmp_path / "long", make, replace(CONFIG, seed=5), steps=8)
    figure = figure_of(reasons_figure, study_of(tmp_path / "long", runs["pair"]))
    axis = draw(figure).axes[1]
    labels = [collection.get_label() for collection in axis.collections]
    assert len(labels) == COLOURED + 1 and labels[-1] == "others"
    top = axis.collections[-1].get_paths()[0].vertices
    logs = {name: logged(folder) for name, folder in (("long", tmp_path / "long"), ("pair", runs["pair"]))}
    failed = {name: [1 - line["student/solve_rate"] for line in log] for name, log in logs.items()}
    for step in range(1, 9):
        own = [fmean(values[max(0, step - 5) : step]) for values in failed.values() if step <= len(values)]
        assert max(top[top[:, 0] == step, 1]) == pytest.approx(fmean(own))
