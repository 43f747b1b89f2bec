"""How arms are told apart in a panel, where their bold lines end, and when there is a band."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure as Drawing

from populora.report.arms import INK, PALETTE, Arm
from populora.report.drawing import WHOLE_RUN, Curve, draw_curves, legend, line_styles


def arms(*colours: str) -> list[Arm]:
    return [Arm(f"arm {place}", (), colour, colour == INK) for place, colour in enumerate(colours)]


def curve(arm: Arm, run: str, member: str, values: list[float]) -> Curve:
    return Curve(arm.label, run, member, "m", np.arange(1, len(values) + 1), np.array(values))


def panel(shown: list[Arm], curves: list[Curve], **options: bool):
    axis = Drawing().subplots()
    draw_curves(axis, shown, curves, 1, **options)
    return axis


def test_arms_of_one_colour_have_lines_of_their_own_in_panels_and_legend():
    shown = arms(INK, INK, INK, *PALETTE, PALETTE[0], INK, INK)
    expected = ["-", "--", ":", *"-" * 6, "--", "-.", "-"]
    assert list(line_styles(shown).values()) == expected
    axis = panel(shown, [curve(arm, "run", WHOLE_RUN, [1.0, 2.0]) for arm in shown])
    assert [(line.get_color(), line.get_linestyle()) for line in axis.lines] == [
        (arm.colour, style) for arm, style in zip(shown, expected, strict=True)
    ]
    legend(axis.figure, shown)
    assert [line.get_linestyle() for line in axis.figure.legends[0].legend_handles] == expected


def test_a_bold_line_ends_with_the_first_run_that_ends_and_the_band_goes_on():
    (arm,) = shown = arms(INK)
    curves = [
        curve(arm, "long", WHOLE_RUN, [1.0, 2.0, 3.0]),
        curve(arm, "short", WHOLE_RUN, [3.0, 4.0]),
        curve(arm, "empty", WHOLE_RUN, [np.nan]),
    ]
    curves += [curve(arm, "long", "A0", [1.0, 2.0, 3.0]), curve(arm, "short", "A0", [3.0, 4.0])]
    axis = panel(shown, curves)
    assert [line.get_xydata().tolist() for line in axis.lines] == [[[1, 2], [2, 3]]], "a run without a value ends nothing"
    corners = axis.collections[0].get_paths()[0].vertices
    assert corners[:, 0].max() == 3 and corners[corners[:, 0] == 1, 1].max() == 3


def test_a_metric_without_a_value_has_no_bold_line():
    (arm,) = shown = arms(INK)
    assert not panel(shown, [curve(arm, "run", WHOLE_RUN, [np.nan]), curve(arm, "none", WHOLE_RUN, [])]).lines


@pytest.mark.parametrize(
    ("single", "bands"), [([], 0), ([("a", "A0")], 0), ([("a", "A0"), ("b", "A0")], 1), ([("a", "S0"), ("a", "S1")], 1)]
)
def test_there_is_a_band_where_there_is_more_than_one_curve_of_a_member(single, bands):
    (arm,) = shown = arms(INK)
    whole = [curve(arm, run, WHOLE_RUN, [1.0, 2.0]) for run in ("a", "b")]
    curves = [*whole, *(curve(arm, run, member, [1.0, 2.0 + place]) for place, (run, member) in enumerate(single))]
    assert len(panel(shown, curves).collections) == bands
    assert len(panel(shown, curves, members=True).lines) == 1 + len(single)
