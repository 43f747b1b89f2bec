"""Coverage of both arms is the logs' coverage, drawn over steps and over programs."""

from __future__ import annotations

import json

import numpy as np
from report_runs import figure_of, logged, study_of

from populora.report.figures.metric_panels import coverage_figure
from populora.report.rendering import draw

NAMES = ("archive/coverage", "archive/proxy", "archive/distinct_descriptors", "archive/total_problems")


def test_rows_are_the_lines_of_the_logs_of_both_arms(runs):
    figure = figure_of(coverage_figure, study_of(runs["pair"], runs["agent"]))
    assert {(row["run"], row["metric"], row["step"]): row["value"] for row in figure.rows} == {
        (run, name, line["step"]): line[name] for run in ("pair", "agent") for line in logged(runs[run]) for name in NAMES
    }
    assert len(figure.rows) == 2 * 4 * 6 and {row["member"] for row in figure.rows} == {"all"}


def test_it_is_drawn_in_per_cent_over_steps_and_over_programs(runs):
    figure = figure_of(coverage_figure, study_of(runs["pair"]))
    lines = logged(runs["pair"])
    over_steps, over_programs, proxy, distinct = ([axis.lines[0].get_xdata(), axis.lines[0].get_ydata()] for axis in draw(figure).axes)
    percent = [100 * line["archive/coverage"] for line in lines]
    np.testing.assert_allclose(np.array(over_steps, float), [[line["step"] for line in lines], percent])
    np.testing.assert_allclose(np.array(over_programs, float), [[line["archive/total_problems"] for line in lines], percent])
    np.testing.assert_allclose(np.array(proxy[1], float), [100 * line["archive/proxy"] for line in lines])
    np.testing.assert_allclose(np.array(distinct[1], float), [line["archive/distinct_descriptors"] for line in lines])


def test_runs_of_different_tessellations_are_not_to_be_compared(copied):
    folders = [copied(to="one"), copied("agent", "two"), copied("agent-1", "without")]
    for digests, differ in ((("aa", "aa"), False), (("aa", "bb"), True)):
        for folder, digest in zip(folders, digests, strict=False):
            facts = json.loads((folder / "run.json").read_text())
            (folder / "run.json").write_text(json.dumps({**facts, "tessellation_sha256": digest * 32}))
        figure = figure_of(coverage_figure, study_of(*folders))
        assert ("DIFFERENT TESSELLATIONS" in figure.definition) == differ
