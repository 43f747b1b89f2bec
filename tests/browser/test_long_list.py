"""The explorer with 13,000 entries: what is drawn of them stays small, whatever is asked for."""

import base64
import gzip
import json

import pytest
from reading import count_found

pytestmark = pytest.mark.browser
ENTRIES, STRETCH = 13_000, 200


@pytest.fixture(scope="module")
def long(report, tmp_path_factory):
    """The page with 13,000 entries in its first run."""
    samples = next(iter(report.samples.values()))
    entries = [{**samples[index % 72], "id": f"n{index}", "step": 1 + index // 100} for index in range(ENTRIES)]
    sample = {"run": "long", "folder": "runs/long", "entries": entries, "proposals": ENTRIES, "valid": ENTRIES, "answers": 9}
    text, opening = report.path.read_text("utf-8"), 'id="blob-explorer-0">'
    start = text.index(opening) + len(opening)
    packed = base64.b64encode(gzip.compress(json.dumps(sample).encode())).decode()
    path = tmp_path_factory.mktemp("long") / "long.html"
    path.write_text(text[:start] + packed + text[text.index("<", start) :], encoding="utf-8")
    return path.as_uri()


def test_a_long_list_is_shown_in_stretches(visits, long):
    tab = visits.open(long)
    assert count_found(tab) == ENTRIES and tab.locator("#list a").count() == STRETCH
    tab.click("text=12800 more")
    assert tab.locator("#list a").count() == 400 and tab.evaluate("document.activeElement.hash") == "#p=long/n200"
    tab.fill("[name=text]", "no such text")
    tab.fill("[name=text]", "")
    assert tab.locator("#list a").count() == 200, "a new search begins at the top"
