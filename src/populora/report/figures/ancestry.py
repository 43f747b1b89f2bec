"""The ancestry of a large population in sum: ancestors, founders and operators of the members over the steps."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from populora.report.drawing import PALE, STUDENT, TEACHER, Drawing, categorical_colours, panels
from populora.report.figure import Record
from populora.report.many_members import draw_quantiles
from populora.report.run_data import Steps
from populora.runs.style import SHOWN_SINGLY

ROLES = {"T": ("teachers", TEACHER), "S": ("students", STUDENT), "A": ("agents", TEACHER)}
"""Name and colour of each role by the first letter of its members."""
COLOURED, OTHERS = 8, "others"
"""Founders with a colour of their own; label of the rest."""
GROUPED = (
    f"Sums, because a role has more than {SHOWN_SINGLY} members. Left: births between a member and its first ancestor, along the longest "
    "line: extremes (pale), quartiles (darker) and median. Centre: members by their founder, the initial adapter at the end of the line of "
    f"first parents; the {COLOURED} with most descendants after the last step have a colour. Right: children by operator, those that still "
    "live dark."
)


def draw_ancestry(rows: Sequence[Record], last: int) -> Drawing:
    """Draw records of `populora.report.figures.lineage_tree.lineage` in a row of three panels for each role."""
    kinds, steps = [kind for kind in ROLES if any(row["member"][0] == kind for row in rows)], np.arange(1, last + 1)
    drawing, axes = panels(len(kinds), 3, width=3.2, height=2.3)
    for line, kind in zip(axes, kinds, strict=True):
        (role, colour), of_role = ROLES[kind], [row for row in rows if row["member"][0] == kind]
        depths, founders = ancestry(of_role)
        draw_quantiles(line[0], steps, _by_place(of_role, depths, steps), colour)
        line[0].set(title=f"{role}: births since the founders", xlabel="step", ylim=(0, None))
        line[0].yaxis.get_major_locator().set_params(integer=True)
        _draw_founders(line[1], steps, of_role, founders)
        left = len({founders[row["name"]] for row in of_role if row["died"] is None})
        line[1].set(title=f"{role} by founder: {left} left", xlabel="step")
        _draw_operators(line[2], of_role, colour)
        line[2].set(title=f"{role} bred by operator", xlabel="children")
    return drawing


def ancestry(rows: Sequence[Record]) -> tuple[dict[str, int], dict[str, str]]:
    """Return the births between each adapter and its first ancestor, along the longest line, and its founder, both by its name."""
    depths, founders = dict[str, int](), dict[str, str]()
    for row in sorted(rows, key=lambda row: row["born"]):
        name: str = row["name"]
        parents: list[str] = row["parents"].split()
        # A parent is unknown if the folder of its birth was removed.
        depths[name] = 1 + max(depths.get(parent, 0) for parent in parents) if parents else 0
        founders[name] = founders.get(parents[0], parents[0]) if parents else name
    return depths, founders


def _by_place(rows: Sequence[Record], values: dict[str, int], steps: Steps) -> Any:
    """Return the value of the adapter that played in each place and step [places, steps]."""
    places = {member: index for index, member in enumerate(sorted({row["member"] for row in rows}))}
    table = np.full((len(places), len(steps)), np.nan)
    for row in rows:
        table[places[row["member"]], row["born"] : row["died"]] = values[row["name"]]
    return table


def _draw_founders(axis: Any, steps: Steps, rows: Sequence[Record], founders: dict[str, str]) -> None:
    living = Counter(founders[row["name"]] for row in rows if row["died"] is None)
    largest = [name for name, _ in living.most_common(COLOURED)]
    number = {name: index for index, name in enumerate(largest)}
    table = _by_place(rows, {row["name"]: number.get(founders[row["name"]], COLOURED) for row in rows}, steps)
    layers = {name: (table == index).sum(axis=0) for name, index in number.items()} | {OTHERS: (table == COLOURED).sum(axis=0)}
    colours = [*categorical_colours(largest).values(), PALE]
    axis.stackplot(steps, *layers.values(), colors=colours, labels=list(layers), linewidth=0)
    handles, labels = axis.get_legend_handles_labels()
    axis.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=6)  # as stacked


def _draw_operators(axis: Any, rows: Sequence[Record], colour: str) -> None:
    bred = Counter(row["operator"] for row in rows if row["parents"])
    living = Counter(row["operator"] for row in rows if row["parents"] and row["died"] is None)
    names = sorted(bred)
    axis.barh(names, [bred[name] for name in names], color=colour, alpha=0.35, height=0.6)
    axis.barh(names, [living[name] for name in names], color=colour, height=0.6)
    axis.set_ylim(max(len(names), 1) - 0.4, -0.6)
    axis.grid(visible=False, axis="y")
