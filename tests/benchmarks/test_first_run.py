"""The first-run experiment's summary: its means, intervals and refusals, and that the committed results are those of the measured runs."""

from __future__ import annotations

import copy
import importlib
import json
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "first_run"


@pytest.fixture
def summarise(monkeypatch):
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("summarise")


def measured() -> dict[str, dict]:
    return {file.stem: json.loads(file.read_text()) for file in sorted((FOLDER / "measured").glob("*.json"))}


def one_number(values: dict[str, float]) -> dict:
    return {name: {"lines": {"last": value}} for name, value in values.items()}


def test_ends_are_means_of_the_first_and_last_steps_that_were_measured(summarise):
    assert summarise.ends([1.0] * 20 + [5.0] * 60 + [2.0] * 20) == {"first": 1.0, "last": 2.0}
    assert summarise.ends([0.5, *[None] * 98, 0.75]) == {"first": 0.5, "last": 0.75}


def test_an_interval_is_welchs(summarise):
    ours, theirs = np.array([9.0, 8.0, 7.5]), np.array([5.0, 6.0, 6.5, 5.5])
    names = {f"4t4s-{seed}": value for seed, value in enumerate(ours)} | {f"baseline-{seed}": value for seed, value in enumerate(theirs)}
    found = summarise.differences(one_number(names), "4t4s", "baseline")["lines"]
    variances = ours.var(ddof=1) / 3, theirs.var(ddof=1) / 4
    freedom = sum(variances) ** 2 / (variances[0] ** 2 / 2 + variances[1] ** 2 / 3)
    half = summarise.stats.t.ppf(0.975, freedom) * np.sqrt(sum(variances))
    assert found["seeds"] == [3, 4] and found["difference"] == pytest.approx(ours.mean() - theirs.mean(), abs=1e-4)
    assert found["interval_95"] == pytest.approx([found["difference"] - half, found["difference"] + half], abs=1e-3)


def test_one_seed_gives_a_difference_without_an_interval(summarise):
    found = summarise.differences(one_number({"2t2s-0": 10.0, "baseline-0": 5.0, "baseline-1": 6.0}), "2t2s", "baseline")
    assert found["lines"] == {"seeds": [1, 2], "difference": 4.5}


def test_an_arm_is_not_taken_for_another_whose_name_begins_alike(summarise):
    runs = one_number({"baseline-0": 5.0, "baseline_equal-0": 9.0})
    assert summarise.differences(runs, "baseline_equal", "baseline")["lines"]["difference"] == 4.0


def test_runs_of_other_settings_are_refused(summarise):
    runs = dict(list(measured().items())[:2])
    summarise.check_alike(runs)
    changed = copy.deepcopy(runs)
    list(changed.values())[1]["conditions"]["settings"]["learner"]["learning_rate"] = 1.0
    with pytest.raises(SystemExit, match="is not comparable with"):
        summarise.check_alike(changed)


def test_a_table_needs_no_baseline(summarise):
    populations = {name: run for name, run in measured().items() if name.startswith("1t1s")}
    assert "lines of code" in summarise.table(summarise.summary(populations))


def test_the_committed_results_are_those_of_the_measured_runs(summarise):
    runs = measured()
    assert all(len(curve) == 100 for run in runs.values() for curve in run["curves"].values())
    found = summarise.summary(runs)
    assert json.loads(json.dumps(found)) == json.loads((FOLDER / "results.json").read_text())
    assert summarise.table(found) == (FOLDER / "table.md").read_text(encoding="utf-8")
