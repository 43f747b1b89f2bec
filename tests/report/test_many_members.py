"""Populations too large to show member by member: bounded figures that say what they sum up, while the CSV keeps every member."""

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

import numpy as np
import pytest
from report_pages import blobs
from report_runs import CONFIG, figure_of, logged, names_of, study_of, table, the_run, write_run

from populora.core.config import PopulationConfig
from populora.evals.eval_records import EvalModel, Evaluation, Score
from populora.evals.shown_models import describe_hidden, shown_models
from populora.report import page as module
from populora.report.figure import Figure
from populora.report.figures import make_figures
from populora.report.figures.ancestry import ancestry
from populora.report.figures.lineage_tree import lineage
from populora.report.figures.matchups import cross_evaluation_figure, trueskill_figure
from populora.report.figures.metric_panels import panel_figures
from populora.report.figures.rated_groups import mean_rates
from populora.report.many_members import by_rating, too_many
from populora.report.page import page

BY_MEMBER = ("dynamics", "sampler_gap", "trueskill", "cross_evaluation", "lineage")
TALLEST = 12.0
"""Inches."""


def population(size: int, steps: int):
    return replace(CONFIG, steps=steps, population=PopulationConfig(teachers=size, students=size))


@pytest.fixture(scope="session")
def crowd(tmp_path_factory: pytest.TempPathFactory, make_record) -> Path:
    """32T+32S, with a round of births after the fifth of six steps."""
    return write_run(tmp_path_factory.mktemp("crowd") / "crowd", make_record, population(32, 6))


def figures_of(folder: Path) -> dict[str, Figure]:
    return {figure.name: figure for figure in make_figures(study_of(folder)) if isinstance(figure, Figure)}


def test_sixteen_members_of_a_role_are_shown_one_by_one_and_seventeen_are_not():
    sixteen = [f"{role}{number}" for role in "TS" for number in range(16)]
    assert not too_many([]) and not too_many(sixteen) and not too_many(sixteen * 2), "another run of the arm has the same members"
    assert too_many([*sixteen, "S16"])


def test_no_figure_of_64_members_is_tall_and_those_by_member_say_what_they_sum_up(crowd, runs):
    figures, small = figures_of(crowd), figures_of(runs["pair"])
    for name, figure in figures.items():
        assert figure.draw().get_size_inches()[1] <= TALLEST, name
    for name in BY_MEMBER:
        assert "16" in figures[name].definition and "16" not in small[name].definition


def test_the_csv_has_every_member_though_the_figure_has_none(crowd):
    everybody = {name for names in names_of(population(32, 6)) for name in names}
    figures = figures_of(crowd)
    for name in ("trueskill", "sampler_gap", "lineage"):
        assert {row["member"] for row in figures[name].rows} - {"all"} == everybody
        marks = [child for axis in figures[name].draw().axes for child in axis.get_children() if (child.get_gid() or "").startswith("mark")]
        assert not marks, name


def test_bands_are_the_quantiles_of_the_members(crowd):
    teachers = figure_of(trueskill_figure, study_of(crowd)).draw().axes[0]
    of_step = defaultdict(list)
    for row in table(crowd, "ratings"):
        if row["role"] == "teacher":
            of_step[row["step"]].append(row["mu"])
    middle, bold = teachers.lines
    np.testing.assert_allclose(np.asarray(middle.get_ydata(), float), [median(of_step[step]) for step in sorted(of_step)])
    np.testing.assert_allclose(np.asarray(bold.get_ydata(), float), [fmean(of_step[step]) for step in sorted(of_step)])
    for band, ends in zip(teachers.collections, ((0, 1), (0.25, 0.75)), strict=True):
        corners = band.get_paths()[0].vertices
        for step, values in of_step.items():
            drawn = corners[corners[:, 0] == step][:, 1]
            assert (drawn.min(), drawn.max()) == pytest.approx(np.quantile(values, ends))


def test_members_have_bands_in_every_panel_and_the_mean_stays_bold(crowd):
    figure = panel_figures(study_of(crowd, smooth=1))["sampler_gap"]
    assert isinstance(figure, Figure)
    for axis, metric in zip(figure.draw().axes, ("kl", "mean_difference", "max_difference", "ess"), strict=True):
        means = [
            fmean(value for key, value in line.items() if key.startswith(f"learner/{metric}/") and key[-1].isdigit())
            for line in logged(crowd)
        ]
        assert len(axis.lines) == 2 and len(axis.collections) == 2
        np.testing.assert_allclose(np.asarray(axis.lines[-1].get_ydata(), float), means)


def test_groups_of_cross_evaluation_are_in_the_order_of_the_ratings_and_their_cells_are_means_over_attempts(crowd):
    figure, log = figure_of(cross_evaluation_figure, study_of(crowd)), the_run(crowd).metrics
    teachers, students = names_of(population(32, 6))
    mu = {row["member"]: row["mu"] for row in table(crowd, "ratings", 4)}
    rows_of, columns_of = by_rating(log, 4, students), by_rating(log, 4, teachers)
    for groups, names in ((rows_of, students), (columns_of, teachers)):
        assert [len(group) for group in groups] == [2] * 16
        assert [name for group in groups for name in group] == sorted(names, key=mu.__getitem__)
    of_part = [row for row in figure.rows if row["snapshot"] == 4]
    attempts = [row for row in table(crowd, "attempts", 4) if not row["void"] and not row["filled"]]
    expected = np.full((16, 16), np.nan)
    for line, ours in enumerate(rows_of):
        for column, theirs in enumerate(columns_of):
            answers = [row["correct"] for row in attempts if row["student"] in ours and row["author"] in theirs]
            expected[line, column] = fmean(answers) if answers else np.nan
    assert np.isnan(expected).any() and np.isfinite(expected).any()
    np.testing.assert_allclose(mean_rates(of_part, rows_of, columns_of), expected)
    drawing = figure.draw()
    profiles = next(axis for axis in drawing.axes if axis.get_title("left") == "to step 4")
    quarters = mean_rates(of_part, by_rating(log, 4, students, 4), columns_of)
    names = ("weakest quarter of the students", "second", "third", "strongest")
    for line, name, expected_line in zip(profiles.lines, names, quarters, strict=True):
        assert line.get_label() == name
        np.testing.assert_array_equal(line.get_ydata(), expected_line)
    *_, bar = drawing.axes
    images = [axis.images[0].get_array() for axis in drawing.axes if axis.images and axis is not bar]
    assert {image.shape for image in images} == {(16, 16)} and any(
        np.allclose(np.ma.filled(image, np.nan), expected, equal_nan=True) for image in images
    )


def test_members_without_a_rating_are_the_weakest(crowd):
    assert by_rating(the_run(crowd).metrics, 1, ["S1", "S99"]) == [["S99"], ["S1"]]


def test_ancestry_follows_the_longest_line_and_the_first_parents():
    born = {"T0#0": (0, ""), "T1#0": (0, ""), "T1#1": (3, "T0#0"), "T0#1": (6, "T1#1 T1#0"), "T1#2": (9, "T9#4 T0#1")}
    depths, founders = ancestry([{"name": name, "born": step, "parents": parents} for name, (step, parents) in born.items()])
    assert depths == {"T0#0": 0, "T1#0": 0, "T1#1": 1, "T0#1": 2, "T1#2": 3}
    assert founders == {"T0#0": "T0#0", "T1#0": "T1#0", "T1#1": "T0#0", "T0#1": "T0#0", "T1#2": "T9#4"}, "T9#4: its folder is gone"


def test_the_lineage_counts_all_places_at_every_step_and_the_children_by_operator(crowd):
    rows = lineage(the_run(crowd))
    drawing = figures_of(crowd)["lineage"].draw()
    for line, (role, title) in enumerate((("T", "teachers"), ("S", "students"))):
        _, by_founder, by_operator = drawing.axes[3 * line : 3 * line + 3]
        corners = np.concatenate([layer.get_paths()[0].vertices for layer in by_founder.collections])
        assert [corners[corners[:, 0] == step][:, 1].max() for step in range(1, 7)] == [32] * 6
        children = Counter(row["operator"] for row in rows if row["member"][0] == role and row["parents"])
        assert sum(children.values()) == 8
        bars, _ = by_operator.containers
        labels = [label.get_text() for label in by_operator.get_yticklabels()]
        assert dict(zip(labels, [bar.get_width() for bar in bars], strict=True)) == children
        assert by_operator.get_title(loc="left") == f"{title} bred by operator"


def test_an_evaluation_shows_the_best_and_the_worst_of_many_members_and_says_how_many_it_leaves_out():
    models = (EvalModel("base", "base"), *(EvalModel(f"S{number}", "student") for number in range(20)), EvalModel("T0", "teacher"))
    scores = tuple(Score(model.name, "aime24", index, 30, 30, {}, 0) for index, model in enumerate(models))
    shown = [model.name for model in shown_models(Evaluation("", models, scores))]
    assert shown == ["base", *(f"S{number}" for number in (*range(5), *range(15, 20))), "T0"]
    assert describe_hidden(Evaluation("", models, scores)).endswith("The CSV has 10 more.")
    assert describe_hidden(Evaluation("", models[:17], scores[:17])) == ""


def test_the_page_of_many_has_no_buttons_and_names_the_place_of_numbers_that_are_too_many(crowd, monkeypatch):
    monkeypatch.setattr(module, "svg", lambda figure: "<svg></svg>")
    figures = [figure for name, figure in figures_of(crowd).items() if name in ("trueskill", "lineage")]
    whole = page(study_of(crowd), figures)
    assert "data-member=" not in whole and {"csv-trueskill", "csv-lineage"} <= set(blobs(whole))
    monkeypatch.setattr(module, "MOST_ROWS", 100)
    text = page(study_of(crowd), figures)
    assert {"csv-trueskill", "csv-lineage"} & set(blobs(text)) == {"csv-lineage"} and len(figures[1].rows) <= 100
    assert f"Its {len(figures[0].rows):,} rows of numbers are too many" in text and 'data-csv="trueskill"' not in text


@pytest.mark.thorough
def test_a_report_of_1000_members_has_ten_megabytes_and_a_foot_at_most(tmp_path, make_record):
    study = study_of(write_run(tmp_path / "run", make_record, population(500, 20)))
    figures = make_figures(study)
    text = page(study, figures)
    assert len(text.encode("utf-8", "backslashreplace")) <= 10_000_000
    assert all(figure.draw().get_size_inches()[1] <= TALLEST for figure in figures if isinstance(figure, Figure))
