"""What models wrote never becomes markup in the page, and nothing is fetched."""

import base64
import hashlib
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_pages import blobs
from report_runs import study_of, write_run

from populora.report.figure import Figure, MissingFigure, Study
from populora.report.figures import make_figures
from populora.report.page import page
from populora.report.rendering import svg

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\n\u202e`code` ]]> --> <!-- {{ 7 * 7 }} $\\frac{1}{0}$ \x00\x07\ud800\n"
    '&lt;b&gt; https://attacker.example/ " \' onmouseover=alert(3)\n<g id="mark.T0.1-1">#1b1b1c'
)
LINE = f'def f(x):\n    return """{HOSTILE}"""'


class Elements(HTMLParser):
    """Every element that a browser would make, with its attributes; what scripts hold is text."""

    def __init__(self, text: str):
        super().__init__()
        self.all: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, {name: value or "" for name, value in attrs}))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, make_record: Callable) -> tuple[str, Study, Path]:
    """The page of a run whose every text, and whose very name, is hostile; rendered whole."""
    folder = tmp_path_factory.mktemp("runs") / "<img src=x onerror=alert(4)>`\u202e"
    study = study_of(write_run(folder, make_record, steps=2, program=LINE, answer=HOSTILE))
    names = ("samples", "dynamics", "reasons")
    figures = [figure for figure in make_figures(study) if isinstance(figure, MissingFigure) or figure.name in names]
    assert len([figure for figure in figures if isinstance(figure, Figure)]) == 3
    return page(study, figures), study, folder


def test_hostile_text_makes_no_element_and_no_attribute(hostile):
    text, *_ = hostile
    elements = Elements(text).all
    assert not {tag for tag, _ in elements} & {"img", "iframe", "object", "embed", "base", "link rel"}
    scripts = [attributes for tag, attributes in elements if tag == "script"]
    assert len(scripts) == text.count("<script") == text.count("</script") == len(blobs(text)) + 1
    assert [attributes for attributes in scripts if attributes.get("type") != "application/octet-stream"] == [{}]
    assert not [name for _, attributes in elements for name in attributes if name.startswith("on")]


def test_nothing_unprintable_of_a_model_stands_in_the_page_and_it_is_valid_utf_8(hostile):
    text, *_ = hostile
    assert text.encode("utf-8") and text.replace("\n", "").replace("\t", "").isprintable()
    assert "\\u202e" in text, "shown as what it is"


def test_hostile_text_is_whole_in_the_explorer_and_in_the_csv(hostile):
    text, _, folder = hostile
    data = blobs(text)
    entries = json.loads(data["explorer-0"])["entries"]
    escaped = HOSTILE.replace("\u202e", "\\u202e").replace("\x00", "\\x00").replace("\x07", "\\x07").replace("\ud800", "\\ud800")
    assert {entry["program"] for entry in entries if "program" in entry} == {LINE.replace(HOSTILE, escaped)}
    assert escaped in {answer["text"] for entry in entries for answer in entry.get("answers", ())}
    assert "<img src=x onerror=alert(2)>" in data["csv-samples"] and folder.name not in text


def test_hostile_programs_are_drawn_as_they_are_without_being_recoloured(hostile):
    _, study, _ = hostile
    figure = next(figure for figure in make_figures(study) if figure.name == "samples")
    assert isinstance(figure, Figure)
    text = svg(figure)
    Elements(text)
    assert "data-mark" not in text and '&lt;g id="mark.T0.1-1"&gt;#1b1b1c"""' in text and "$\\frac{1}{0}$ \\x00\\x07\\ud800" in text


def test_only_what_the_page_holds_is_loaded(hostile):
    text, *_ = hostile
    for tag, attributes in Elements(text).all:
        for name in ("src", "href", "xlink:href", "data", "action", "poster", "srcset"):
            if name in attributes:
                assert attributes[name].startswith(("#", "data:")), (tag, attributes)
        assert "url(http" not in attributes.get("style", "")
    style = re.findall(r"<style.*?</style>", text, flags=re.DOTALL)
    assert not re.search(r"@import|url\((?!#|\"?data:)", "".join(style))


def test_the_policy_allows_the_one_script_by_its_hash_and_no_network(hostile):
    text, *_ = hostile
    metas = [attributes for tag, attributes in Elements(text).all if tag == "meta"]
    (policy,) = [meta["content"] for meta in metas if meta.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    script = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    assert len(script) == 1
    assert rules["script-src"] == f"'sha256-{base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()}'"
    assert rules["default-src"] == "'none'" and rules["base-uri"] == rules["form-action"] == "'none'"
    assert not re.search(r"https?:|\*", policy)
