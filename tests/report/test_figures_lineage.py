"""Every adapter's life against the tables of children and ratings."""

from pathlib import Path

import pytest
from report_runs import figure_of, study_of, table

from populora.report.drawing import STUDENT, TEACHER
from populora.report.figures.lineage_tree import lineage_figure


def rated(folder: Path, member: str, after: int, until: int) -> float | None:
    """The last mu of an adapter: it is rated in the steps after its birth, up to that in which its place is taken."""
    means = [row["mu"] for row in table(folder, "ratings") if row["member"] == member and after < row["step"] <= until]
    return means[-1] if means else None


def test_every_adapter_has_a_row_from_birth_to_death(runs):
    folder = runs["pair"]
    born = {(row["member"], row["generation"]): row for row in table(folder, "children")}
    assert [(member, generation, row["born"]) for (member, generation), row in born.items()] == [("T1", 1, 3), ("S0", 1, 5), ("T1", 2, 6)]
    lives = {"S0#0": (0, 5), "S0#1": (5, None), "S1#0": (0, None), "T0#0": (0, None), "T1#0": (0, 3), "T1#1": (3, 6), "T1#2": (6, None)}
    rows = figure_of(lineage_figure, study_of(folder)).rows
    assert {row["name"]: (row["born"], row["died"]) for row in rows} == lives and len(rows) == len(lives)
    for row in rows:
        child = born.get((row["member"], row["generation"]))
        assert row["mu"] == rated(folder, row["member"], row["born"], row["died"] or 6)
        measures = [row[name] for name in ("operator", "norm_ratio", "effective_rank")]
        if child is None:
            assert (*measures, row["parents"], row["cosines"]) == ("init", None, None, "", "")
        else:
            assert row["parents"] == " ".join(name.split(":")[0] for name in child["parents"])
            assert measures == [child[name] for name in ("operator", "norm_ratio", "effective_rank")]
            assert [float(cosine) for cosine in row["cosines"].split()] == pytest.approx(child["cosines"], abs=1e-4)
    assert next(row for row in rows if row["name"] == "T1#2")["mu"] is None, "born after the last step: not rated yet"


def test_a_life_is_drawn_at_the_height_of_its_member_and_a_birth_has_a_ring_at_each_parent(runs):
    figure = figure_of(lineage_figure, study_of(runs["pair"]))
    (axis,) = figure.draw().axes
    height = {label.get_text(): place for label, place in zip(axis.get_yticklabels(), axis.get_yticks(), strict=True)}
    assert list(height) == ["T0", "T1", "S0", "S1"]
    lives = {(*line.get_xdata(), *line.get_ydata(), line.get_color()) for line in axis.lines if line.get_linewidth() == 3}
    assert lives == {
        (row["born"], row["died"] or 6, *[height[row["member"]]] * 2, TEACHER if row["member"][0] == "T" else STUDENT)
        for row in figure.rows
    }
    parents = [(row["born"], height[row["member"]], height[name[:2]]) for row in figure.rows for name in row["parents"].split()]
    assert sorted(tuple(point) for rings in axis.collections for point in rings.get_offsets()) == sorted((b, p) for b, _, p in parents)
    lines = [(*line.get_xdata(), *line.get_ydata()) for line in axis.lines if line.get_linewidth() == 0.7]
    assert sorted(lines) == sorted((born, born, parent, child) for born, child, parent in parents) and len(parents) == 4
