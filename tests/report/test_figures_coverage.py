"""Coverage of both arms: the rows, and what is computed again where the log is gone, against `ribs` and counting by hand."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from report_runs import logged, study_of, table
from ribs.archives import CVTArchive

from populora.report.figure import Absent, Figure
from populora.report.figures.coverage import coverage_figure
from populora.report.loading import RunData
from populora.report.rendering import drawn
from populora.runs.archive import TESSELLATION, keep_tessellation
from populora.tasks.coverage import centroids

NAMES = ("archive/coverage", "archive/proxy", "archive/distinct_descriptors", "archive/total_problems")
DESCRIPTOR = ("ast_depth", "cyclomatic", "loc", "variables")


def test_rows_are_the_lines_of_the_logs_of_both_arms(runs):
    figure = coverage_figure(study_of(runs["pair"], runs["agent"]))
    assert isinstance(figure, Figure)
    assert {(row["run"], row["metric"], row["step"]): row["value"] for row in figure.rows} == {
        (run, name, line["step"]): line[name] for run in ("pair", "agent") for line in logged(runs[run]) for name in NAMES
    }
    assert len(figure.rows) == 2 * 4 * 6 and {row["member"] for row in figure.rows} == {"all"}
    assert "THESE RUNS HAVE DIFFERENT" not in figure.definition


def test_it_is_drawn_in_per_cent_and_beside_the_programs(runs):
    figure = coverage_figure(study_of(runs["pair"]))
    assert isinstance(figure, Figure)
    lines = logged(runs["pair"])
    over_steps, over_programs, proxy, distinct = ([axis.lines[0].get_xdata(), axis.lines[0].get_ydata()] for axis in drawn(figure).axes)
    percent = [100 * line["archive/coverage"] for line in lines]
    np.testing.assert_allclose(np.array(over_steps, float), [[line["step"] for line in lines], percent])
    np.testing.assert_allclose(np.array(over_programs, float), [[line["archive/total_problems"] for line in lines], percent])
    np.testing.assert_allclose(np.array(proxy[1], float), [100 * line["archive/proxy"] for line in lines])
    np.testing.assert_allclose(np.array(distinct[1], float), [line["archive/distinct_descriptors"] for line in lines])


def test_coverage_that_no_log_holds_is_computed_from_the_tables_as_ribs_computes_it(copied):
    folder = copied()
    (folder / "metrics.jsonl").unlink()
    keep_tessellation(folder)
    run = RunData(folder)
    kept = np.load(folder / TESSELLATION)
    oracle = CVTArchive(solution_dim=1, centroids=kept["centroids"].astype(float), ranges=[(0, 1)] * 4)
    descriptors: list[tuple[int, ...]] = []
    for index, step in enumerate(range(1, 7)):
        own = [tuple(row[name] for name in DESCRIPTOR) for row in table(folder, "proposals", step)
               if row["valid"] and row["rho"] is not None and row["task"] != "code_f"]  # fmt: skip
        descriptors += own
        low, high = kept["ranges"].T
        scaled = (np.clip(np.array(own, float), low, high) - low) / (high - low)
        oracle.add(np.zeros((len(own), 1)), np.zeros(len(own)), scaled)
        found = {name: run.metrics.get(name)[index] for name in NAMES}
        assert found == {
            "archive/coverage": oracle.stats.coverage,
            "archive/proxy": len(descriptors) / 4096,
            "archive/distinct_descriptors": len(set(descriptors)),
            "archive/total_problems": len(descriptors),
        }


def test_without_the_log_and_the_tessellation_it_says_what_is_missing(copied):
    folder = copied()
    (folder / "metrics.jsonl").unlink()
    study = study_of(folder)
    figure = coverage_figure(study)
    assert isinstance(figure, Absent) and figure.reason == "no run has archive/coverage"
    assert any("tessellation.npz" in note and "cannot be computed again" in note for _, note in study.missing)


def test_runs_of_different_tessellations_are_not_to_be_compared(runs, copied):
    folders = [copied(to="one"), copied("agent", "two")]
    for folder in folders:
        keep_tessellation(folder)
    run = RunData(folders[0])
    assert run.tessellation == hashlib.sha256((folders[0] / TESSELLATION).read_bytes()).hexdigest()
    alike = coverage_figure(study_of(*folders))
    np.savez(folders[1] / TESSELLATION, ranges=np.zeros((4, 2)), centroids=centroids()[:7])
    differing = coverage_figure(study_of(*folders))
    assert isinstance(alike, Figure) and "DIFFERENT TESSELLATIONS" not in alike.definition
    assert isinstance(differing, Figure) and "DIFFERENT TESSELLATIONS" in differing.definition


@pytest.mark.parametrize("name", NAMES[1:])
def test_what_an_older_log_lacks_leaves_its_panel_empty(copied, name):
    folder = copied()
    text = (folder / "metrics.jsonl").read_text().replace(f'"{name}"', '"older/name"')
    (folder / "metrics.jsonl").write_text(text)
    figure = coverage_figure(study_of(folder))
    assert isinstance(figure, Figure) and name not in {row["metric"] for row in figure.rows}
    assert sum(bool(axis.lines) for axis in drawn(figure).axes) == 3
