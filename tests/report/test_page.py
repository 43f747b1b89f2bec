"""The page: equal inputs are equal bytes, and every figure says what it is, where its numbers are from and of how many runs."""

import json
import re
from pathlib import Path

import markupsafe
import pytest
from report_pages import blobs
from report_runs import study_of

from populora.report import page as module
from populora.report.figure import Figure, MissingFigure
from populora.report.figures import make_figures
from populora.report.page import page
from populora.report.rendering import save_figure, svg
from populora.runs.step_columns import schema_of
from populora.runs.summary import summarise


@pytest.mark.slow
def test_pages_of_equal_inputs_are_equal_but_for_the_date(runs):
    def made() -> str:
        study = study_of(runs["pair"], runs["agent"])
        wanted = ("lineage", "comparison")
        return page(study, [figure for figure in make_figures(study) if isinstance(figure, MissingFigure) or figure.name in wanted])

    first, second = (re.sub(r"on \d{4}-\d\d-\d\d \d\d:\d\d UTC", "", text) for text in (made(), made()))
    assert first == second


@pytest.mark.slow
@pytest.mark.parametrize("name", ["samples", "reasons"])
def test_a_figure_drawn_twice_is_equal_bytes_in_every_kind(runs, tmp_path, name):
    def made(folder: Path) -> dict[str, bytes]:
        folder.mkdir()
        figure = next(figure for figure in make_figures(study_of(runs["pair"])) if figure.name == name)
        assert isinstance(figure, Figure)
        return {"page": svg(figure).encode(), **{file.name: file.read_bytes() for file in save_figure(figure, folder)}}

    first, second = made(tmp_path / "first"), made(tmp_path / "second")
    assert first == second
    assert list(first) == ["page", *(f"{name}.{kind}" for kind in ("csv", "svg", "png", "pdf"))]
    assert first[f"{name}.png"].startswith(b"\x89PNG") and first[f"{name}.pdf"].startswith(b"%PDF") and b"<svg" in first[f"{name}.svg"]


def test_every_figure_says_what_it_is_where_its_numbers_are_from_and_of_how_many_runs(runs):
    for figure in make_figures(study_of(runs["pair"], runs["pair-1"], runs["agent"])):
        assert figure.title
        if isinstance(figure, MissingFigure):
            assert len(figure.reason) > 10, figure
            continue
        assert figure.definition.endswith(".") and len(figure.definition) > 60, figure.name
        assert re.search(r"seeds? \d", figure.runs) and re.search(r"\brun\b|\bruns\b|evaluation", figure.runs), figure.name
        named = re.findall(r"(\w+)\.parquet: ([^;]+)", figure.source)
        for name, columns in named:
            if not columns.startswith("all columns"):
                assert {column.strip() for column in columns.split(",")} <= set(schema_of(name, ["python"]).names)
        assert named or re.search(r"(metrics|timings)\.jsonl: \w", figure.source), figure.name
        assert figure.rows and len({tuple(row) for row in figure.rows}) == 1, "all rows have the same keys"
        assert len(figure.csv().splitlines()) >= 1 + len(figure.rows)


@pytest.mark.slow
def test_no_id_stands_in_the_page_twice_and_what_is_referred_to_is_there(runs):
    study = study_of(runs["pair"], runs["agent"])
    text = page(study, [figure for figure in make_figures(study) if figure.name in ("dynamics", "sampler_gap", "trueskill", "samples")])
    ids = re.findall(r'<[^>]*\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids)) and text.count("<svg") == 4
    used = set(re.findall(r'url\(#([^)]+)\)|<use [^>]*href="#([^"]+)"', text))
    assert len(used) > 20 and {url or href for url, href in used} <= set(ids)


def test_definitions_sources_and_what_is_shown_stand_in_the_page(runs, monkeypatch):
    monkeypatch.setattr(module, "svg", lambda figure: f"<svg>{len(figure.draw().axes)}</svg>")
    study = study_of(runs["pair"], runs["agent"])
    figures = make_figures(study)
    text = page(study, figures, live_version="7")
    for figure in figures:
        assert f'<figure id="{figure.name}"' in text
        if isinstance(figure, Figure):
            assert blobs(text)[f"csv-{figure.name}"] == figure.csv()
            assert f"<b>Shown:</b> {markupsafe.escape(figure.runs)}" in text
    assert re.findall(r'data-member="(\w+)"', text) == ["T0", "T1", "S0", "S1"] and 'data-version="7"' in text
    assert text.partition("</table>")[0].count("<td>6</td>") == 2, "of the runs"
    assert "2 runs in 2 arms, up to step 6" in text
    sample = json.loads(blobs(text)["explorer-0"])
    assert f"pair: {len(sample['entries'])} of {sample['proposals']} proposals ({sample['valid']} valid), each with up to" in text


def test_the_page_opens_on_what_happened_in_the_words_of_the_closing_summary(runs):
    sentences = summarise(runs["pair"]).highlights
    text = page(study_of(runs["pair"]), [])
    assert all(f"<p>{sentence}</p>" in text.partition("</header>")[0] for sentence in sentences)
    two = page(study_of(runs["pair"], runs["agent"]), []).partition("</header>")[0]
    assert f"<p>{runs['pair'].name}: {sentences[0]}</p>" in two, "of several runs it is said which"
