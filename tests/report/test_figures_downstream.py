"""Figures of evaluations, from folders of verdicts written here."""

import html
import json
import re
from pathlib import Path
from statistics import fmean, stdev

import pytest
from matplotlib.collections import LineCollection
from matplotlib.container import BarContainer
from report_runs import study_of

import populora
from populora.core.errors import PopuloraError
from populora.report.figure import Figure, MissingFigure
from populora.report.figures.downstream import downstream_figures
from populora.report.page import page

ROLES = {"base": "base", "T0": "teacher", "T1": "teacher", "S0": "student", "S1": "student"}
ITEMS = {"aime24": 30, "amc23": 40}
CORRECT = {"base": (1, 2), "T0": (3, 12), "T1": (6, 4), "S0": (27, 20), "S1": (15, 36)}
RATES = {(model, name): 100 * count / ITEMS[name] for model, counts in CORRECT.items() for name, count in zip(ITEMS, counts, strict=True)}


def evaluation(folder: Path, graded: int = 40, **correct: tuple[int, int]) -> Path:
    """Write verdicts, ``graded`` of them for S1 on amc23."""
    for model, counts in {**CORRECT, **correct}.items():
        for (name, items), count in zip(ITEMS.items(), counts, strict=True):
            lines = [{"item_id": f"{name}-{index}", "correct": index < count} for index in range(items)]
            lines = lines[:graded] if (model, name) == ("S1", "amc23") else lines
            (folder / "verdicts" / name).mkdir(parents=True, exist_ok=True)
            (folder / "verdicts" / name / f"{model}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = {
        "models": {name: {"role": role} for name, role in ROLES.items()},
        "benchmarks": {name: {"sha256": "y", "items": items} for name, items in ITEMS.items()},
    }
    (folder / "evaluation.json").write_text(json.dumps({"settings": settings, "skipped": {"gsm8k": "its file is not there"}}))
    return folder


def figures_of_folder(runs, folder: Path, **options) -> list[Figure]:
    figures = downstream_figures(study_of(runs["pair"], evaluations=(folder,), **options))
    assert all(isinstance(figure, Figure) for figure in figures)
    return figures


def members(roles: str, name: str) -> list[float]:
    return [RATES[f"{role}{index}", name] for role in roles for index in (0, 1)]


def test_rows_have_means_of_roles_with_their_spread_and_every_member(runs, tmp_path):
    bars, adapters = figures_of_folder(runs, evaluation(tmp_path / "pair" / "evaluations" / "step_00006"))
    headline = {(row["row"], row["column"]): (row["value"], row["std"]) for row in bars.rows if row["mode"] == "primary"}
    for row, roles in (("Population, mean of 4", "TS"), ("Teacher, mean of 2", "T"), ("Student, mean of 2", "S")):
        for name in ITEMS:
            rates = members(roles, name)
            assert headline[row, name] == pytest.approx((fmean(rates), stdev(rates)))
    assert {(row["model"], row["benchmark"]): (row["correct"], row["graded"], row["items"]) for row in adapters.rows} == {
        (model, name): (count, items, items)
        for model, counts in CORRECT.items()
        for (name, items), count in zip(ITEMS.items(), counts, strict=True)
    }
    widths = [patch.get_width() for axis in adapters.draw().axes for patch in axis.patches]
    assert widths == pytest.approx([RATES[model, name] for name in ITEMS for model in ROLES])
    assert bars.runs == adapters.runs == "1 evaluation: pair/step_00006: 5 models" and bars.tables


def test_the_footnotes_of_the_tables_stand_in_the_page(runs, tmp_path):
    study = study_of(runs["pair"], evaluations=(evaluation(tmp_path / "pair" / "evaluations" / "step_00006", graded=20),))
    bars, *others = downstream_figures(study)
    notes = [note for table in bars.tables for note in table.footnotes]
    text = re.sub("</?code>", "`", html.unescape(page(study, [bars, *others])))
    assert len(notes) > 2 and all(note in text for note in notes)


def test_a_table_notes_settings_in_which_its_evaluations_differ_and_python_has_the_same_figures(copied):
    run = copied("pair", "A/pair")
    folders = [evaluation(run / "evaluations" / name) for name in ("step_00004", "step_00006")]
    for folder, tokens in zip(folders, (224, 96), strict=True):
        described = json.loads((folder / "evaluation.json").read_text())
        described["settings"]["max_tokens"] = tokens
        (folder / "evaluation.json").write_text(json.dumps(described))
    bars, _ = downstream_figures(study_of(run, evaluations=tuple(folders)))
    assert "Different settings: max_tokens is 224 (pair/step_00004); 96 (pair/step_00006)." in bars.tables[0].footnotes
    assert populora.figures(run)["downstream"].runs == "1 evaluation: pair/step_00006: 5 models, run pair, seed 0"


def test_a_bar_is_the_populations_mean_a_cap_reaches_to_its_best_adapter_and_a_line_over_their_spread(runs, tmp_path):
    (axis,) = figures_of_folder(runs, evaluation(tmp_path / "mine"))[0].draw().axes
    containers = [container for container in axis.containers if isinstance(container, BarContainer) and len(container)]
    heights = [(container[0].get_alpha(), [patch.get_height() for patch in container]) for container in containers]
    base = (1.0, pytest.approx([RATES["base", name] for name in ITEMS]))
    caps, bars = (pytest.approx([of(members("TS", name)) for name in ITEMS]) for of in (max, fmean))
    assert heights == [base, (0.3, caps), (1.0, bars)]
    (segments,) = (line.get_segments() for line in axis.collections if isinstance(line, LineCollection))
    for segment, name in zip(segments, ITEMS, strict=True):
        rates = members("TS", name)
        assert segment[:, 1].tolist() == pytest.approx([fmean(rates) - stdev(rates), fmean(rates) + stdev(rates)])


def test_a_population_of_one_teacher_and_one_student_has_a_cap_too(runs, tmp_path):
    folder = evaluation(tmp_path / "mine")
    described = json.loads((folder / "evaluation.json").read_text())
    described["settings"]["models"] = {name: {"role": ROLES[name]} for name in ("T0", "S0")}
    (folder / "evaluation.json").write_text(json.dumps(described))
    (axis,) = figures_of_folder(runs, folder)[0].draw().axes
    heights = [[patch.get_height() for patch in container] for container in axis.containers if isinstance(container, BarContainer)]
    pairs = [(RATES["T0", name], RATES["S0", name]) for name in ITEMS]
    assert heights == [pytest.approx([max(pair) for pair in pairs]), pytest.approx([fmean(pair) for pair in pairs])]


def test_evaluations_of_equally_named_runs_are_told_apart_and_have_the_seed_of_a_run_of_the_report(copied):
    run = copied("pair", "A/pair")
    folders = [folder / "evaluations" / "step_00006" for folder in (run, run.parents[1] / "B" / "pair")]
    for correct, folder in enumerate(folders):
        evaluation(folder, T0=(correct, 0))
    bars, adapters = downstream_figures(study_of(run, evaluations=(*folders, folders[0])))
    assert bars.runs == f"2 evaluations: {folders[0]}: 5 models, run pair, seed 0; {folders[1]}: 5 models"
    rows = [row for row in adapters.rows if (row["model"], row["benchmark"]) == ("T0", "aime24")]
    assert [(row["evaluation"], row["correct"]) for row in rows] == [(str(folders[0]), 0), (str(folders[1]), 1)]
    (legend,) = bars.draw().legends
    assert len({text.get_text() for text in legend.get_texts()}) == 4


def test_a_benchmark_graded_in_part_has_no_bar_but_a_row(runs, tmp_path):
    bars, adapters = figures_of_folder(runs, evaluation(tmp_path / "mine", graded=7))
    lengths = [len(container) for container in bars.draw().axes[0].containers if isinstance(container, BarContainer)]
    assert lengths == [0, 2, 1, 1], "the population's bar and cap: not all of it has amc23"
    row = next(row for row in adapters.rows if (row["model"], row["benchmark"]) == ("S1", "amc23"))
    assert (row["graded"], row["items"]) == (7, 40)
    assert sum(len(axis.patches) for axis in adapters.draw().axes) == len(ROLES) * len(ITEMS) - 1


@pytest.mark.parametrize("published", [True, False])
def test_the_papers_table_is_laid_under_ours_only_when_asked_for(runs, tmp_path, published):
    bars, _ = figures_of_folder(runs, evaluation(tmp_path / "mine"), published=published)
    assert ("published" in {row["mode"] for row in bars.rows}) == published


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
