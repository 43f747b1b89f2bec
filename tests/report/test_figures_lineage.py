"""Every adapter's life against the tables of children and ratings."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from report_runs import rewrite, study_of, table

from populora.report.figure import Absent, Figure
from populora.report.figures.lineage import lineage_figure
from populora.report.rendering import drawn


def figure_of(folder: Path) -> Figure:
    found = lineage_figure(study_of(folder))
    assert isinstance(found, Figure)
    return found


def rated(folder: Path, member: str, after: int, until: int) -> float | None:
    """The last mu of an adapter: it is rated in the steps after its birth, up to that in which its place is taken."""
    found = [row["mu"] for row in table(folder, "ratings") if row["member"] == member and after < row["step"] <= until]
    return found[-1] if found else None


def test_every_adapter_has_a_row_from_birth_to_death(runs):
    folder = runs["pair"]
    born = {(row["member"], row["generation"]): row for row in table(folder, "children")}
    assert [(member, generation, row["born"]) for (member, generation), row in born.items()] == [("T1", 1, 3), ("S0", 1, 5), ("T1", 2, 6)]
    lives = {"S0#0": (0, 5), "S0#1": (5, None), "S1#0": (0, None), "T0#0": (0, None), "T1#0": (0, 3), "T1#1": (3, 6), "T1#2": (6, None)}
    rows = figure_of(folder).rows
    assert {row["name"]: (row["born"], row["died"]) for row in rows} == lives and len(rows) == len(lives)
    for row in rows:
        child = born.get((row["member"], row["generation"]))
        expected = rated(folder, row["member"], row["born"], row["died"] or 6)
        assert row["mu"] == expected
        if child is None:
            assert (row["operator"], row["parents"], row["norm_ratio"], row["cosines"], row["effective_rank"]) == (
                "init",
                "",
                None,
                "",
                None,
            )
        else:
            assert row["parents"] == " ".join(name.split(":")[0] for name in child["parents"])
            assert [row[name] for name in ("operator", "norm_ratio", "effective_rank")] == [
                child[name] for name in ("operator", "norm_ratio", "effective_rank")
            ]
            assert [float(one) for one in row["cosines"].split()] == pytest.approx(child["cosines"], abs=1e-4)
    assert next(row for row in rows if row["name"] == "T1#2")["mu"] is None, "born after the last step: not rated yet"


def test_lives_births_and_parents_are_drawn(runs):
    figure = figure_of(runs["pair"])
    (axis,) = drawn(figure).axes
    lives = [line for line in axis.lines if str(line.get_gid()).startswith("mark.")]
    assert sorted(str(line.get_gid()).split(".")[1] for line in lives) == sorted(row["member"] for row in figure.rows)
    places = ["T0", "T1", "S0", "S1"]
    for line, row in zip(lives, figure.rows, strict=True):
        y = places.index(row["member"])
        end = 6 if row["died"] is None else row["died"]
        assert np.asarray(line.get_xydata()).tolist() == [[row["born"], y], [end, y]]
    children = table(runs["pair"], "children")
    births = [line for line in axis.lines if line.get_marker() == "o"]
    assert sorted(np.asarray(line.get_xydata()).tolist() for line in births) == sorted(
        [[row["born"], places.index(row["member"])]] for row in children
    )
    # From the parent's place to the child's, and a ring at the parent's.
    pairs = [(row["born"], places.index(parent[:2]), places.index(row["member"])) for row in children for parent in row["parents"]]
    assert any(parent != child for _, parent, child in pairs)
    thin = [np.asarray(line.get_xydata()).tolist() for line in axis.lines if line not in lives and line not in births]
    assert sorted(thin) == sorted([[born, parent], [born, child]] for born, parent, child in pairs)
    rings = [np.asarray(ring.get_offsets()).tolist() for ring in axis.collections]
    assert sorted(rings) == sorted([[born, parent]] for born, parent, _ in pairs)
    assert [label.get_text() for label in axis.get_yticklabels()] == ["T0", "T1", "S0", "S1"]
    assert "3 were bred" in figure.definition and figure.shown == "2T+2S: run pair, seed 0"


def test_a_run_without_children_shows_its_first_adapters(copied):
    folder = copied()
    for step in range(1, 7):
        rewrite(folder, "children", step, lambda found: found.slice(0, 0))
    assert [row["name"] for row in figure_of(folder).rows] == ["S0#0", "S1#0", "T0#0", "T1#0"]
    assert "0 were bred" in figure_of(folder).definition


def test_a_child_whose_ratings_are_gone_is_drawn_all_the_same(copied):
    folder = copied()
    text = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(text.replace("rating/mu/T0", "gone/T0").replace("rating/mu/T1", "gone/T1"))
    figure = figure_of(folder)
    assert {row["name"] for row in figure.rows} == {"S0#0", "S0#1", "S1#0", "T1#1", "T1#2"} and drawn(figure)


def test_single_agents_and_runs_without_ratings_have_no_lineage(runs, copied):
    agent = lineage_figure(study_of(runs["agent"]))
    assert isinstance(agent, Absent) and agent.reason == "it needs a run with teachers and students"
    folder = copied()
    shutil.rmtree(folder / "steps")
    (folder / "metrics.jsonl").unlink()
    empty = lineage_figure(study_of(folder))
    assert isinstance(empty, Absent) and empty.reason == "the run has no ratings yet"
