"""How arms are told apart in a panel, where their bold lines end, and when there is a band."""

from __future__ import annotations

import numpy as np
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
