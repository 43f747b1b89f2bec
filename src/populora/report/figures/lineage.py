"""Where each adapter came from: the places of a population over the steps, and the children that took them over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from populora.report.curves import MEMBER
from populora.report.figure import Absent, Figure, Row, Study, one_run
from populora.report.loading import Log, RunData

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

NAME, TITLE = "lineage", "Lineage"
_FIRST: Row = {"generation": 0, "born": 0, "operator": "init", "parents": [], "norm_ratio": None, "cosines": [], "effective_rank": None}
"""What the tables of children do not have: the adapters that a run began with."""


def lineage_figure(study: Study) -> Figure | Absent:
    """Every adapter's life and its parents."""
    if not study.main:
        return Absent(NAME, TITLE, "it needs a run with teachers and students")
    run = study.main.runs[0]
    rows = lineage(run)
    if not rows:
        return Absent(NAME, TITLE, "the run has no ratings yet")
    children = sum(bool(row["operator"] != "init") for row in rows)
    return Figure(
        name=NAME,
        title=TITLE,
        definition=(
            f"A line is the life of one adapter at its place (T0, S3), strong and pale in turn; {children} were bred. A dot is a birth, "
            "with its operator and the child's norm by its parents' mean norm; thin lines come from the parents, where a ring is. At the "
            "right end: mu after the last step. The CSV has cosines to the parents, effective rank, and mu when it was last rated."
        ),
        source="children.parquet: all columns but the stream; metrics.jsonl: rating/mu/MEMBER",
        shown=one_run(study.main),
        rows=rows,
        draw=lambda: _draw(rows, int(run.metrics.steps[-1])),
    )


def lineage(run: RunData) -> list[dict[str, Any]]:
    """A row an adapter: ``name`` (``T1#0``), when it was ``born`` and ``died`` (none: alive), how it was bred, ``mu`` at its end
    (none: not rated yet)."""
    log = run.metrics
    if not len(log.steps):
        return []
    columns = ("member", "generation", "born", "operator", "parents", "norm_ratio", "cosines", "effective_rank")
    children = run.table("children", columns).to_pylist()
    first = [{"member": member, **_FIRST} for member in log.under("rating/mu") if MEMBER.fullmatch(member)]
    in_order = sorted([*first, *children], key=lambda row: (len(row["member"]), row["member"], row["generation"]))
    return [_life(row, children, log) for row in in_order]


def _life(row: Row, children: list[dict[str, Any]], log: Log) -> dict[str, Any]:
    """One adapter until a later child takes its place."""
    later = [child["born"] for child in children if child["member"] == row["member"] and child["generation"] > row["generation"]]
    died = min(later, default=None)
    # In the step of a birth the place is still rated as its old adapter, which played in it.
    rated = log.get(f"rating/mu/{row['member']}")[(log.steps > row["born"]) & (log.steps <= (died or log.steps[-1]))]
    return {
        "name": f"{row['member']}#{row['generation']}",
        "member": row["member"],
        "generation": row["generation"],
        "born": row["born"],
        "died": died,
        "operator": row["operator"],
        "parents": " ".join(parent.partition(":")[0] for parent in row["parents"]),
        "norm_ratio": row["norm_ratio"],
        "cosines": " ".join(f"{cosine:.4f}" for cosine in row["cosines"]),
        "effective_rank": row["effective_rank"],
        "mu": float(rated[-1]) if len(rated) else None,
    }


def _draw(rows: list[dict[str, Any]], last: int) -> Drawing:
    from populora.report.drawing import PALE, STUDENT, TEACHER, mark, panels

    places = sorted({row["member"] for row in rows}, key=lambda member: (member[0] == "S", len(member), member))
    drawing, axes = panels(1, 1, width=9.0, height=0.8 + 0.42 * len(places))
    axis, height = axes[0, 0], {place: index for index, place in enumerate(places)}
    for row in rows:
        y, colour = height[row["member"]], STUDENT if row["member"][0] == "S" else TEACHER
        end = row["died"] if row["died"] is not None else last
        style = {"color": colour, "linewidth": 3, "alpha": 0.4 if row["generation"] % 2 else 0.95, "solid_capstyle": "butt"}
        mark(axis.plot([row["born"], end], [y, y], **style)[0], row["member"])
        for place in (parent.partition("#")[0] for parent in row["parents"].split()):
            if place in height:  # what ratings could be read may lack a place
                axis.plot([row["born"]] * 2, [height[place], y], color=PALE, linewidth=0.7, zorder=1)
                axis.scatter(row["born"], height[place], 25, facecolors="none", edgecolors=PALE, linewidths=0.7, zorder=3)
        if row["operator"] != "init":
            axis.plot(row["born"], y, "o", color=colour, markersize=4)
            axis.annotate(f"{row['operator']} {row['norm_ratio']:.2f}", (row["born"], y), (3, 4), textcoords="offset points", fontsize=6)
        if row["died"] is None and row["mu"] is not None:
            axis.annotate(f"{row['mu']:.1f}", (last, y), (26, -2), textcoords="offset points", fontsize=7)
    axis.annotate("mu", (last, -0.6), (26, -2), textcoords="offset points", fontsize=7)
    axis.set_yticks(range(len(places)), places)
    axis.grid(visible=False, axis="y")
    axis.set(xlabel="step", ylim=(len(places) - 0.5, -0.7), xlim=(0, last * 1.07))
    return drawing
