"""Measures and verdicts of curves, worked by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from populora.core.rng import stream
from populora.evals.retention.recovery_curves import smoothed
from populora.evals.retention.settings import RetentionConfig
from populora.evals.retention.verdicts import cell_measures, recovered, summary, t_interval, table, verdict, versus

CONFIG = RetentionConfig(
    parents=("code_i", "code_o"),
    seeds=(0, 1, 2),
    snapshots=(4,),
    repeated=4,
    retrain_steps=4,
    operators=("m1", "x2"),
    prompts=2,
    samples=4,
    initial_problems=3,
    window=2,
)


def cell(seed: int, initial: dict[str, int] | None = None, **solving: list[int]):
    """Make a cell of four steps in which adapters solve 4 of 8, or the numbers in ``solving``. ``initial`` is of 12, by default 6 and 3
    by the bare base."""
    names = {"m1": ("code_i",), "copy_parent": ("code_i",), "x2": ("code_i", "code_o"), "linear_0_5": ("code_i", "code_o")}
    names |= {"fresh_1": ("code_i",), "fresh_2": ("code_i", "code_o"), "parent_1": ("code_i",), "parent_2": ("code_o",)}

    def counts(name: str, step: int) -> list[int]:
        solved = solving.get(name, [4, 4, 4, 4])[step]
        return [(solved + 1) // 2, solved // 2]

    both = ("x2", "linear_0_5", "fresh_2")  # have half of the problems of each task
    shares = {name: 1 if name in both else 2 for name in names}
    curve = [{name: {task: counts(name, step)[: shares[name]] for task in tasks} for name, tasks in names.items()} for step in range(4)]
    names["base"] = ("code_i", "code_o")
    before = dict.fromkeys(names, 6) | {"base": 3} | (initial or {})
    first = {name: {task: [min(4, before[name]), max(0, before[name] - 4), 0] for task in tasks} for name, tasks in names.items()}
    return {"seed": seed, "snapshot": 4, "initial": first, "curve": curve}


def test_the_means_of_the_figures_begin_with_what_there_is():
    np.testing.assert_allclose(smoothed(np.arange(1.0, 8.0)), [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0])


def test_a_child_has_recovered_when_a_window_and_all_that_follows_reach_the_share_of_its_parent():
    parent = np.full(5, 0.8)
    assert recovered(parent, parent, 0.95, window=2) == 0
    assert recovered(np.array([0.0, 0.4, 0.8, 0.8, 0.8]), parent, 0.95, window=2) == 2
    assert recovered(np.array([0.0, 0.4, 0.8, 1.0, 0.8]), parent, 0.95, window=3) == 2
    assert recovered(np.array([0.0, 0.9, 0.9, 0.0, 0.0]), parent, 0.95, window=2) is None  # it did not last
    assert recovered(np.array([0.0, 0.0, 0.0, 0.0, 0.8]), parent, 0.95, window=2) is None  # one step is no window
    assert recovered(parent * 0.9, parent, 0.95, window=2) is None
    assert recovered(parent * 0.96, parent, 0.95, window=2) == 0


@pytest.mark.parametrize(("gap", "share"), [(0.0, (0.9, 1.0)), (0.12, (0.0, 0.05))])
@pytest.mark.parametrize("steps", [20, 50])
@pytest.mark.parametrize("samples", [32, 64])
def test_a_child_that_stays_clearly_below_its_parent_hardly_ever_counts_as_recovered(gap, share, steps, samples):
    rng = stream(0, "chance")
    curves = [[rng.binomial(samples, rate, steps) / samples for rate in (0.7 - gap, 0.7)] for _ in range(400)]
    counted = np.mean([recovered(child, parent, 0.95, window=10) is not None for child, parent in curves])
    assert share[0] <= counted <= share[1]


def test_a_child_is_measured_against_parent_control_and_fresh_adapter_on_the_same_problems():
    (m1, *_) = [
        item
        for item in cell_measures(CONFIG, cell(0, {"m1": 5}, m1=[0, 2, 4, 8], copy_parent=[4, 4, 6, 6], fresh_1=[2, 2, 2, 2]))
        if item.child == "m1"
    ]
    assert (m1.task, m1.seed, m1.snapshot) == ("code_i", 0, 4)
    assert m1.gain == 0.25
    assert m1.initial == pytest.approx(-1 / 12)
    assert m1.recovered == 2  # from the third step on it solves 4 and 8 of 8, before 2 and 4: too little against 0.95 * 4
    assert m1.area_lost == pytest.approx(0.5 + 0.25 + 0 - 0.5)
    assert m1.against_control == pytest.approx((14 - 20) / 4 / 8)
    assert m1.against_fresh == pytest.approx((14 - 8) / 4 / 8)
    assert m1.end == pytest.approx(0.25) and m1.kept == pytest.approx(0.25 + 0.05 * 0.5)


def test_a_child_of_two_parents_counts_on_each_task_against_the_parent_trained_on_it():
    by_task = {item.task: item for item in cell_measures(CONFIG, cell(0, {"parent_2": 8}, parent_2=[8] * 4)) if item.child == "x2"}
    assert set(by_task) == {"code_i", "code_o"}
    assert by_task["code_i"].initial == 0 and by_task["code_o"].initial == pytest.approx(-2 / 12)
    assert by_task["code_i"].gain == pytest.approx(3 / 12) and by_task["code_o"].gain == pytest.approx(5 / 12)
    assert by_task["code_i"].recovered == 0
    assert by_task["code_o"].recovered is None and by_task["code_o"].area_lost == pytest.approx(2.0)


def test_intervals_over_seeds_are_students():
    values = [0.1, 0.3, 0.2]
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert t_interval(values) == pytest.approx((0.2, low, high))
    assert t_interval([0.1]) == (pytest.approx(0.1), -math.inf, math.inf)


@pytest.mark.parametrize(
    ("difference", "expected"),
    [
        ((0.0, -0.04, 0.04), "equal"),
        ((-0.01, -0.02, -0.005), "equal"),  # surely below, but by less than the margin
        ((0.2, 0.1, 0.3), "better"),
        ((-0.2, -0.3, -0.1), "worse"),
        ((0.0, -0.2, 0.2), "undecided"),
        ((0.1, -math.inf, math.inf), "undecided"),  # one seed
    ],
)
def test_a_child_is_only_told_from_its_control_where_the_interval_carries_it(difference, expected):
    assert versus(difference, 0.05) == expected


def row(gain: float, low: float, high: float):
    return {"gain": (0.1, gain, 0.2), "kept": (0.0, low, high)}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([row(0.05, 0.01, 0.1)], "retains"),
        ([row(0.05, 0.01, 0.1), row(0.05, -0.01, 0.1)], "undecided"),  # retained on both tasks, or not at all
        ([row(0.05, 0.01, 0.1), row(0.05, -0.1, -0.01)], "loses"),
        ([row(0.05, -0.1, 0.1)], "undecided"),
        ([row(-0.01, 0.01, 0.1)], "nothing to retain"),  # a parent no better than the base is soon reached
        ([row(0.05, 0.01, 0.1), row(0.0, 0.01, 0.1)], "nothing to retain"),
        ([row(-math.inf, -math.inf, math.inf)], "undecided"),  # one seed
    ],
)
def test_a_verdict_needs_parents_that_learned_and_every_task(rows, expected):
    assert verdict(rows) == expected


def rows_of(*cells):
    return summary(CONFIG, [item for one_cell in cells for item in cell_measures(CONFIG, one_cell)], 4)


def test_the_table_has_points_of_100_and_the_share_of_its_parents_gain_that_a_child_begins_with():
    rows = rows_of(*(cell(seed, {"m1": 5}, copy_parent=[2] * 4, fresh_1=[0] * 4) for seed in range(3)))
    head, *lines = table(CONFIG, rows).splitlines()
    assert head.endswith("ahead of the bare base by +25.0 [+25.0, +25.0] on code_i, +25.0 [+25.0, +25.0] on code_o.")
    (m1,) = [line.strip("| ").split(" | ") for line in lines if line.startswith("| m1 ")]
    nothing = "+0.0 [+0.0, +0.0]"
    assert m1 == [
        "m1 svd structured", "code_i", "-8.3 [-8.3, -8.3]", "67 %", "0, 0, 0", nothing, nothing, "retains",
        "+25.0 [+25.0, +25.0] better", "+50.0 [+50.0, +50.0]",
    ]  # fmt: skip


def test_the_summary_has_a_row_for_each_child_and_task_over_the_finished_seeds_of_one_snapshot():
    other = {**cell(0), "snapshot": 9}  # does not count
    rows = rows_of(cell(0), cell(1, m1=[0] * 4), cell(2, m1=[8] * 4), other)
    assert [(row["child"], row["task"]) for row in rows] == [
        ("m1", "code_i"), ("copy_parent", "code_i"), ("x2", "code_i"), ("x2", "code_o"), ("linear_0_5", "code_i"), ("linear_0_5", "code_o"),
    ]  # fmt: skip
    first = rows[0]
    assert first["recovered"] == [0, None, 0] and first["verdict"] == "undecided" and first["seeds"] == 3
    assert first["against_control"][0] == pytest.approx(0.0) and first["versus_control"] == "undecided"
    assert rows[1]["verdict"] == "retains" and rows[1]["versus_control"] == ""
    assert rows[2]["verdict"] == "retains" and rows[2]["versus_control"] == "equal"
    assert rows_of() == [] and {row["seeds"] for row in rows_of(cell(1))} == {1}
