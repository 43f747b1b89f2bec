"""The page that follows a run: it loads what is new, but not while the reader is in the explorer, and says when the server has ended."""

from contextlib import ExitStack

import pytest
from reading import until

from populora.report.server import serve_page

pytestmark = pytest.mark.browser


class Page:
    """A page whose next version the test decides."""

    def __init__(self, text: str):
        live = '<div class="tools"><span id="live" role="status">following the run</span>'
        self.html = text.replace("<body>", '<body data-version="1">').replace('<div class="tools">', live)
        self.version, self.text = "1", "last step finished just now"

    def rebuild(self): ...

    def poll(self):
        return {"version": self.version, "text": self.text}

    def renew(self):
        self.html = self.html.replace('data-version="1"', 'data-version="2"').replace("up to step 12", "up to step 13")
        self.version = "2"


@pytest.fixture
def followed(report):
    """Yield the page, its address, and what ends its server."""
    page = Page(report.path.read_text("utf-8"))
    with ExitStack() as stack:
        yield page, stack.enter_context(serve_page(page, 0)), stack


def test_a_new_page_is_loaded_and_the_reader_stays_where_they_are(visits, followed):
    page, address, _ = followed
    tab = visits.open(f"{address}#p=population/7-2")
    tab.locator("[data-csv=dynamics]").focus()
    tab.locator("#trueskill").scroll_into_view_if_needed()
    until(tab, "document.querySelector('#live').textContent === 'last step finished just now'")
    scrolled = tab.evaluate("scrollY")
    page.renew()
    tab.wait_for_selector('html[data-ready] body[data-version="2"]')
    assert "up to step 13" in tab.inner_text(".lead")
    assert tab.url.endswith("#p=population/7-2") and tab.locator("#problem h3").count() == 1
    assert abs(tab.evaluate("scrollY") - scrolled) < 200


def test_a_reader_in_the_explorer_is_not_interrupted(visits, followed):
    page, address, _ = followed
    tab = visits.open(address)
    tab.fill("[name=text]", "x")
    page.renew()
    until(tab, "document.querySelector('#live').textContent.endsWith('; reload this page to see it')")
    assert tab.input_value("[name=text]") == "x" and tab.locator('body[data-version="1"]').count() == 1
    tab.locator("[data-csv=dynamics]").focus()
    tab.wait_for_selector('body[data-version="2"]')


def test_a_server_that_has_ended_is_told(visits, followed):
    _, address, stack = followed
    tab = visits.open(f"{address}#p=population/7-2")
    stack.close()
    tab.wait_for_selector("#live.lost")
    assert "the server has ended" in tab.inner_text("#live") and tab.locator("#problem h3").count() == 1
    assert visits.noise, "the browser itself reports what it could not load"
    tab.context.close()
    visits.noise.clear()
