"""The ancestry of every adapter: the members of a population over the steps, and the children that replaced them."""

from typing import Any

from populora.report.drawing import PALE, STUDENT, TEACHER, Drawing, member_order, members_of, panels, tag_artist
from populora.report.figure import Figure, MissingFigure, Record, Study, describe_first_run
from populora.report.figures.ancestry import GROUPED, draw_ancestry
from populora.report.many_members import too_many
from populora.report.run_data import Log, RunData

FIGURE = ("lineage", "Lineage", "")
MEASURES = "The CSV has cosines to the parents and of their A, effective rank and the last mu."
_INITIAL: Record = {
    "generation": 0, "born": 0, "operator": "init", "parents": [], "norm_ratio": None, "cosines": [], "effective_rank": None,
    "basis_cosine": None,
}  # fmt: skip


def lineage_figure(study: Study) -> Figure | MissingFigure:
    """Draw the life of every adapter and its parents."""
    if not study.main:
        return MissingFigure(*FIGURE, "it needs a run with teachers and students")
    run = study.main.runs[0]
    rows = lineage(run)
    if not rows:
        return MissingFigure(*FIGURE, "the run has no ratings yet")
    children = sum(row["operator"] != "init" for row in rows)
    grouped = too_many(row["member"] for row in rows)
    return Figure(
        *FIGURE,
        definition=f"{GROUPED} {children} were bred. {MEASURES}"
        if grouped
        else (
            f"A line is the life of one adapter as a member (T0, S3), strong and pale in turn; {children} were bred. A dot is a birth, "
            "with its operator and the child's norm by its parents' mean norm; thin lines come from the parents, which have a ring. At the "
            f"right end: mu after the last step. {MEASURES}"
        ),
        source="children.parquet: all columns but the stream; metrics.jsonl: rating/mu/MEMBER",
        runs=describe_first_run(study.main),
        rows=rows,
        drawing=lambda: (draw_ancestry if grouped else _draw)(rows, run.metrics.last_step),
    )


def lineage(run: RunData) -> list[dict[str, Any]]:
    """Return a record for each adapter, also the initial ones. ``died`` is None if it is alive, ``mu`` if it is not rated yet."""
    log = run.metrics
    if not len(log.steps):
        return []
    columns = ("member", "generation", "born", "operator", "parents", "norm_ratio", "cosines", "effective_rank", "basis_cosine")
    children = run.table("children", columns).to_pylist()
    initial = [{"member": member, **_INITIAL} for member in members_of(log)]
    in_order = sorted([*initial, *children], key=lambda row: (len(row["member"]), row["member"], row["generation"]))
    return [
        _life(row, following["born"] if following and following["member"] == row["member"] else None, log)
        for row, following in zip(in_order, [*in_order[1:], None], strict=True)
    ]


def _life(row: Record, died: int | None, log: Log) -> dict[str, Any]:
    # In the step of a birth the member is still rated as its old adapter, which played in it.
    rated = log.get(f"rating/mu/{row['member']}")[(log.steps > row["born"]) & (log.steps <= (died or log.last_step))]
    return {
        "name": f"{row['member']}#{row['generation']}",
        **{key: row[key] for key in ("member", "generation", "born", "operator", "norm_ratio", "effective_rank", "basis_cosine")},
        "died": died,
        "parents": " ".join(parent.partition(":")[0] for parent in row["parents"]),
        "cosines": " ".join(f"{cosine:.4f}" for cosine in row["cosines"]),
        "mu": float(rated[-1]) if len(rated) else None,
    }


def _draw(rows: list[dict[str, Any]], last: int) -> Drawing:
    members = sorted({row["member"] for row in rows}, key=member_order)
    drawing, axes = panels(1, 1, width=9.0, height=0.8 + 0.42 * len(members))
    axis, height = axes[0, 0], {member: index for index, member in enumerate(members)}
    for row in rows:
        born, y, colour = row["born"], height[row["member"]], STUDENT if row["member"][0] == "S" else TEACHER
        style = {"color": colour, "linewidth": 3, "alpha": 0.4 if row["generation"] % 2 else 0.95, "solid_capstyle": "butt"}
        tag_artist(axis.plot([born, last if row["died"] is None else row["died"]], [y, y], **style)[0], row["member"])
        for parent in (name.partition("#")[0] for name in row["parents"].split()):
            axis.plot([born] * 2, [height[parent], y], color=PALE, linewidth=0.7, zorder=1)
            axis.scatter(born, height[parent], 25, facecolors="none", edgecolors=PALE, linewidths=0.7, zorder=3)
        if row["operator"] != "init":
            axis.plot(born, y, "o", color=colour, markersize=4)
            axis.annotate(f"{row['operator']} {row['norm_ratio']:.2f}", (born, y), (3, 4), textcoords="offset points", fontsize=6)
        if row["died"] is None and row["mu"] is not None:
            axis.annotate(f"{row['mu']:.1f}", (last, y), (26, -2), textcoords="offset points", fontsize=7)
    axis.annotate("mu", (last, -0.6), (26, -2), textcoords="offset points", fontsize=7)
    axis.set_yticks(range(len(members)), members)
    axis.grid(visible=False, axis="y")
    axis.set(xlabel="step", ylim=(len(members) - 0.5, -0.7), xlim=(0, last * 1.07))
    return drawing
