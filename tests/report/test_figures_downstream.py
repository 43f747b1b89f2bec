"""Figures of evaluations, from folders of verdicts written here, against counting them by hand."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, stdev

import pytest
from matplotlib.collections import LineCollection
from matplotlib.container import BarContainer
from report_runs import study_of

from populora.core.errors import PopuloraError
from populora.core.rng import stream
from populora.report.figure import Figure, MissingFigure
from populora.report.figures.downstream import downstream_figures
from populora.report.rendering import draw

SOURCES = {"base": "base", "T0": "teacher", "T1": "teacher", "S0": "student", "S1": "student"}
ITEMS = {"aime24": 30, "amc23": 40}


def evaluation(folder: Path, graded: int | None = None) -> Path:
    """Verdicts drawn from a stream; ``graded``: of S1 on amc23 so many alone."""
    rng = stream(0, "report tests", "evaluation")
    for name, items in ITEMS.items():
        (folder / "verdicts" / name).mkdir(parents=True)
        for source in SOURCES:
            count = graded if graded is not None and (name, source) == ("amc23", "S1") else items
            lines = [{"item_id": f"{name}-{index}", "correct": bool(rng.random() < 0.4)} for index in range(count)]
            (folder / "verdicts" / name / f"{source}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    description = {
        "settings": {
            "models": {name: {"role": role} for name, role in SOURCES.items()},
            "benchmarks": {name: {"sha256": "y", "items": items} for name, items in ITEMS.items()},
        },
        "skipped": {"gsm8k": "its file is not there"},
    }  # fmt: skip
    (folder / "evaluation.json").write_text(json.dumps(description))
    return folder


def set_rates(folder: Path, correct: dict[str, dict[str, int]]) -> Path:
    """So many items right, by source and benchmark."""
    for source, own in correct.items():
        for name, count in own.items():
            lines = [{"item_id": f"{name}-{index}", "correct": index < count} for index in range(ITEMS[name])]
            (folder / "verdicts" / name / f"{source}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def right(folder: Path, name: str, source: str) -> list[bool]:
    lines = (folder / "verdicts" / name / f"{source}.jsonl").read_text().splitlines()
    return [json.loads(line)["correct"] for line in lines]


def figures_of_folder(runs, folder: Path, **options) -> list[Figure]:
    found = downstream_figures(study_of(runs["pair"], evaluations=(folder,), **options))
    assert all(isinstance(one, Figure) for one in found)
    return [one for one in found if isinstance(one, Figure)]


def test_bars_are_means_of_roles_with_their_spread_and_rows_have_every_member(runs, tmp_path):
    folder = evaluation(tmp_path / "pair" / "evaluations" / "step_00006")
    bars, adapters = figures_of_folder(runs, folder)
    rates = {(source, name): 100 * fmean(right(folder, name, source)) for source in SOURCES for name in ITEMS}
    headline = {(row["row"], row["column"]): row for row in bars.rows if row["mode"] == "primary"}
    for role in ("Teacher, mean of 2", "Student, mean of 2"):
        for name in ITEMS:
            own = [rates[f"{role[0]}{index}", name] for index in (0, 1)]
            row = headline[role, name]
            assert (row["value"], row["std"]) == pytest.approx((fmean(own), stdev(own)))
    assert {(row["model"], row["benchmark"]): (row["correct"], row["graded"], row["items"]) for row in adapters.rows} == {
        (source, name): (sum(right(folder, name, source)), items, items) for source in SOURCES for name, items in ITEMS.items()
    }
    widths = [patch.get_width() for axis in draw(adapters).axes for patch in axis.patches]
    assert widths == pytest.approx([rates[source, name] for name in ITEMS for source in SOURCES])
    assert bars.runs == adapters.runs == "1 evaluation: pair/step_00006: 5 models"
    assert bars.tables and draw(bars)


def test_a_cap_reaches_to_the_best_of_the_roles_own_members_and_a_line_over_their_bisected(runs, tmp_path):
    """Students are far better here: the teachers' cap must not be theirs."""
    correct = {"base": (1, 2), "T0": (3, 12), "T1": (6, 4), "S0": (27, 20), "S1": (15, 36)}
    folder = set_rates(evaluation(tmp_path / "mine"), {one: dict(zip(ITEMS, counts, strict=True)) for one, counts in correct.items()})
    (axis,) = draw(figures_of_folder(runs, folder)[0]).axes
    heights = {}
    for container in axis.containers:
        for place, name in enumerate(ITEMS):
            if isinstance(container, BarContainer) and len(container):
                bar = container.patches[place]
                heights[container.get_label().split(",")[0], bar.get_alpha(), name] = bar.get_height()
    rates = {(one, name): 100 * count / ITEMS[name] for one, counts in correct.items() for name, count in zip(ITEMS, counts, strict=True)}
    for name in ITEMS:
        assert heights["mine base", 1.0, name] == pytest.approx(rates["base", name])
        for role in ("Teacher", "Student"):
            own = [rates[f"{role[0]}{index}", name] for index in (0, 1)]
            assert heights[f"mine {role}", 1.0, name] == pytest.approx(fmean(own))
    caps = [[patch.get_height() for patch in one.patches] for one in axis.containers
            if isinstance(one, BarContainer) and len(one) and one.patches[0].get_alpha() == 0.3]  # fmt: skip
    assert caps == [pytest.approx([max(rates[f"{letter}{index}", name] for index in (0, 1)) for name in ITEMS]) for letter in "TS"]
    lines = [line.get_segments() for line in axis.collections if isinstance(line, LineCollection)]
    for segments, letter in zip(lines, "TS", strict=True):
        for segment, name in zip(segments, ITEMS, strict=True):
            own = [rates[f"{letter}{index}", name] for index in (0, 1)]
            assert segment[:, 1].tolist() == pytest.approx([fmean(own) - stdev(own), fmean(own) + stdev(own)])


def test_evaluations_of_equally_named_runs_are_told_apart_and_have_the_seed_of_a_run_of_the_report(copied):
    run = copied("pair", "A/pair")
    folders = [evaluation(folder / "evaluations" / "step_00006") for folder in (run, run.parents[1] / "B" / "pair")]
    for correct, folder in enumerate(folders):
        set_rates(folder, {"T0": {"aime24": correct}})
    bars, adapters = downstream_figures(study_of(run, evaluations=(*folders, folders[0])))
    assert isinstance(bars, Figure) and isinstance(adapters, Figure)
    assert bars.runs == f"2 evaluations: {folders[0]}: 5 models, run pair, seed 0; {folders[1]}: 5 models"
    rows = [row for row in adapters.rows if (row["model"], row["benchmark"]) == ("T0", "aime24")]
    assert [(row["evaluation"], row["correct"]) for row in rows] == [(str(folders[0]), 0), (str(folders[1]), 1)]
    (legend,) = draw(bars).legends
    assert len({text.get_text() for text in legend.get_texts()}) == 6


def test_a_benchmark_graded_in_part_has_no_bar_but_a_row(runs, tmp_path):
    folder = evaluation(tmp_path / "mine", graded=7)
    bars, adapters = figures_of_folder(runs, folder)
    whole = [one for one in draw(bars).axes[0].containers if isinstance(one, BarContainer)]
    assert [len(one) for one in whole] == [0, 2, 2, 2, 1, 1], "the students' bar and cap: not all of them have amc23"
    row = next(row for row in adapters.rows if (row["model"], row["benchmark"]) == ("S1", "amc23"))
    assert (row["graded"], row["items"]) == (7, 40)
    assert sum(len(axis.patches) for axis in draw(adapters).axes) == len(SOURCES) * len(ITEMS) - 1


def test_the_papers_table_is_laid_under_ours_only_when_asked_for(runs, tmp_path):
    folder = evaluation(tmp_path / "mine")
    readings = [{row["mode"] for row in figures_of_folder(runs, folder, published=asked)[0].rows} for asked in (False, True)]
    assert "published" not in readings[0] and "published" in readings[1]


def test_without_a_graded_evaluation_there_are_no_bars_and_an_absent_one_is_an_error(runs, tmp_path):
    folder = evaluation(tmp_path / "mine")
    for file in folder.glob("verdicts/*/*"):
        file.unlink()
    for evaluations, reason in (((), "--evaluation DIR"), ((folder,), "nothing is graded yet in mine")):
        for figure in downstream_figures(study_of(runs["pair"], evaluations=evaluations)):
            assert isinstance(figure, MissingFigure) and reason in figure.reason and figure.paper
    (folder / "evaluation.json").unlink()
    with pytest.raises(PopuloraError, match="is not an evaluation"):
        downstream_figures(study_of(runs["pair"], evaluations=(folder,)))
