"""Curves of metrics against loops over the log's own lines, and how arms are told apart."""

import math
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure as Drawing
from report_runs import logged, the_arm, write_run

from populora.report.arms import INK, PALETTE, Arm
from populora.report.drawing import WHOLE_RUN, Curve, curve_rows, curves_of, draw_curves, legend, line_styles, mean, stack, trailing

NUMBERS = st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf])


def naive_mean(values: list[float]) -> float:
    defined = [value for value in values if math.isfinite(value)]
    return fmean(defined) if defined else math.nan


def naive_trailing(values: list[float], window: int) -> list[float]:
    return [naive_mean(values[max(0, end - window) : end]) for end in range(1, len(values) + 1)]


@given(st.lists(NUMBERS, max_size=40), st.integers(1, 50))
def test_a_trailing_mean_is_the_mean_of_what_is_defined_in_the_window(values, window):
    means = trailing(np.array(values), window)
    np.testing.assert_allclose(means, naive_trailing(values, window), rtol=1e-9, atol=1e-6)


def test_a_trailing_mean_over_one_step_is_what_was_logged_and_a_huge_value_spoils_only_its_window():
    values = np.array([1.0, math.nan, 0.1, 1e300, 0.2, 0.3, 0.4])
    np.testing.assert_array_equal(trailing(values, 1), values)
    np.testing.assert_allclose(trailing(values, 2)[5:], [0.25, 0.35])


@given(st.integers(1, 5).flatmap(lambda wide: st.lists(st.lists(NUMBERS, min_size=wide, max_size=wide), min_size=1, max_size=5)))
def test_a_mean_over_runs_leaves_out_what_is_undefined(rows):
    np.testing.assert_allclose(mean(np.array(rows)), [naive_mean(list(column)) for column in zip(*rows, strict=True)], rtol=1e-9, atol=1e-6)


@given(st.lists(st.sets(st.integers(1, 12), min_size=1), min_size=1, max_size=4))
def test_curves_of_different_steps_stand_on_all_steps_that_any_has(logs):
    steps, values = stack([(np.array(sorted(log)), np.array(sorted(log)) * 10.0 + row) for row, log in enumerate(logs)])
    assert steps.tolist() == sorted(set().union(*logs))
    expected = [[step * 10.0 + row if step in log else math.nan for step in steps.tolist()] for row, log in enumerate(logs)]
    np.testing.assert_array_equal(values, expected)


def test_rows_are_the_lines_of_the_log_of_the_run_and_of_its_members(runs):
    rows = list(curve_rows(curves_of([the_arm(runs["pair"])], "teacher/difficulty", "code_f")))
    names = {"all": "teacher/difficulty/code_f", **{name: f"teacher/difficulty/{name}/code_f" for name in ("T0", "T1")}}
    assert rows == [
        {"arm": "2T+2S", "run": "pair", "member": member, "metric": "teacher/difficulty/code_f", "step": line["step"], "value": line[name]}
        for member, name in (("T0", names["T0"]), ("T1", names["T1"]), ("all", names["all"]))
        for line in logged(runs["pair"])
        if name in line
    ]


def test_what_is_logged_by_member_alone_is_for_the_run_the_mean_of_its_members(runs):
    members = ("S0", "S1", "T0", "T1")
    curves = {curve.member: curve for curve in curves_of([the_arm(runs["pair"])], "learner/entropy")}
    assert set(curves) == {*members, "all"}
    expected = [fmean(line[f"learner/entropy/{name}"] for name in members if f"learner/entropy/{name}" in line)
                for line in logged(runs["pair"])]  # fmt: skip
    np.testing.assert_allclose(curves["all"].values, expected)
    assert math.isnan(curves["T1"].values[1]), "T1 was not updated in step 2"


def test_the_bold_line_is_the_mean_of_runs_and_the_band_reaches_over_all_members(runs, tmp_path, make_record):
    longer = write_run(tmp_path / "longer", make_record, steps=9)
    arm = the_arm(runs["pair-1"], longer)
    axis = Drawing().subplots()
    draw_curves(axis, [arm], curves_of([arm], "student/solve_rate"), 3)
    logs = [logged(runs["pair-1"]), logged(longer)]
    smooth = {
        (run, name): naive_trailing([line.get(f"student/solve_rate{name}", math.nan) for line in log], 3)
        for run, log in enumerate(logs) for name in ("", "/S0", "/S1")
    }  # fmt: skip
    (line,) = axis.lines
    both, steps = list(range(1, 7)), list(range(1, 10))
    expected = [fmean(smooth[run, ""][step - 1] for run in (0, 1)) for step in both]
    np.testing.assert_array_equal(line.get_xdata(), both)
    np.testing.assert_allclose(np.asarray(line.get_ydata(), float), expected)
    (band,) = axis.collections
    for step in steps:
        values = [smooth[run, name][step - 1] for run in (0, 1) for name in ("/S0", "/S1") if step <= len(logs[run])]
        corners = band.get_paths()[0].vertices
        heights = corners[corners[:, 0] == step, 1]
        assert (heights.min(), heights.max()) == pytest.approx((min(values), max(values)))


def test_arms_of_one_colour_have_lines_of_their_own_in_panels_and_legend():
    arms = [Arm(f"arm {index}", (), colour) for index, colour in enumerate((INK, INK, INK, *PALETTE, PALETTE[0], INK, INK))]
    expected = ["-", "--", ":", *"-" * 6, "--", "-.", "-"]
    assert list(line_styles(arms).values()) == expected
    axis = Drawing().subplots()
    draw_curves(axis, arms, [Curve(arm.label, "run", WHOLE_RUN, "m", np.arange(1, 3), np.array([1.0, 2.0])) for arm in arms], 1)
    assert [(line.get_color(), line.get_linestyle()) for line in axis.lines] == [
        (arm.colour, style) for arm, style in zip(arms, expected, strict=True)
    ]
    legend(axis.figure, arms)
    assert [line.get_linestyle() for line in axis.figure.legends[0].legend_handles] == expected
