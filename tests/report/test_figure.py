"""A figure's numbers as CSV, and how it says what it is of."""

import csv
import io
import xml.etree.ElementTree as ElementTree

from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure as Drawing
from PIL import Image
from report_runs import study_of

from populora.report.figure import Figure, describe_first_run, describe_runs
from populora.report.rendering import save_figure

TEXTS = st.text(st.characters(codec="utf-8") | st.sampled_from('\r\n",;\x00 =')) | st.sampled_from(["\r", "\r\n", "a\rb", '"', ""])


def of(rows) -> Figure:
    def draw():
        raise AssertionError("nothing is drawn here")

    return Figure("name", "title", "", "definition", "source", "shown", rows, draw)


@given(st.lists(st.fixed_dictionaries({"program": TEXTS, "value": st.floats(allow_nan=False), "step": st.integers()}), min_size=1))
def test_a_csv_is_read_back_as_it_was_whatever_a_model_wrote(rows):
    read = list(csv.DictReader(io.StringIO(of(rows).csv(), newline="")))
    assert [row["program"] for row in read] == [row["program"] for row in rows]
    assert [(float(row["value"]), int(row["step"])) for row in read] == [(row["value"], row["step"]) for row in rows]


def test_a_file_says_in_itself_what_it_shows(tmp_path):
    figure = Figure("name", "A – title", "", "What is drawn.", "a.jsonl: x", "4T+4S in run<\udcff>: 1 run, seed 0", [{"a": 1}], Drawing)
    words = "What is drawn. Shown: 4T+4S in run<\\udcff>: 1 run, seed 0. From: a.jsonl: x."
    _, drawing, pixels, sheet = save_figure(figure, tmp_path)
    purl = "{http://purl.org/dc/elements/1.1/}"
    root = ElementTree.fromstring(drawing.read_text("utf-8"))  # noqa: S314 we wrote it
    assert [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")] == ["A – title"]
    assert [element.text for element in root.iter(f"{purl}description")] == [words] and not list(root.iter(f"{purl}date"))
    with Image.open(pixels) as image:
        assert (image.info["Title"], image.info["Description"]) == ("A – title", words)
    data = sheet.read_bytes()
    assert b"/Title <feff" in data.lower() or "A – title".encode("utf-16-be") in data
    assert words.encode().replace(b"\\", b"\\\\") in data and b"CreationDate" not in data


def test_a_figure_that_a_user_draws_looks_like_those_of_the_report(tmp_path):
    def drawn():
        drawing = Drawing()
        drawing.subplots().set_title("left", loc="left")
        return drawing

    drawing = Figure("name", "title", "", "definition", "source", "shown", [{"a": 1}], drawn).draw()
    (axis,) = drawing.axes
    assert axis.title.get_fontsize() == 9 and not axis.spines["top"].get_visible() and drawing.get_facecolor() == (1, 1, 1, 1)


def test_how_many_runs_and_seeds_are_shown(runs):
    study = study_of(runs["pair"], runs["pair-1"], runs["agent"])
    assert describe_runs(study.arms) == "baseline (1 agent): 1 run, seed 0; 2T+2S: 2 runs, seeds 0, 1"
    assert describe_first_run(study.arms[1]) == "2T+2S: run pair, seed 0 (the first of 2)"
    assert describe_first_run(study.arms[0]) == "baseline (1 agent): run agent, seed 0"
