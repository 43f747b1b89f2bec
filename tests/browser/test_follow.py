"""The page that follows a run: it takes over what is new, and the reader stays where they are; the server's end is said."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

pytestmark = pytest.mark.browser


class Server:
    """Serves ``page`` on the loopback device, with a version."""

    def __init__(self, page: str):
        self.page, self.version, self.text = page, "1", "step 12 of 20"
        self.answers = 200
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                version = json.dumps({"version": server.version, "text": server.text})
                body = {"/": server.page, "/version": version}[self.path].encode()
                self.send_response(server.answers)
                self.send_header("Content-Type", "text/html; charset=utf-8" if self.path == "/" else "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(report) -> Iterator[Server]:
    served = Server(
        report.path.read_text("utf-8")
        .replace("<body>", '<body data-version="1">')
        .replace('<div class="tools">', '<div class="tools"><span id="live" role="status">following the run</span>')
    )
    yield served
    served.end()


def renewed(server: Server) -> None:
    """One more step: another lead, another caption, a figure that was absent before."""
    page = server.page.replace('data-version="1"', 'data-version="2"').replace("up to step 12", "up to step 13")
    page = page.replace("trailing means over 5 steps", "trailing means over 6 steps")
    server.page, server.version, server.text = page, "2", "step 13 of 20"


def test_what_is_new_is_taken_over_and_the_reader_stays(visits, server):
    tab = visits.open(server.url)
    tab.click("#theme")
    tab.select_option("[name=run]", label="population")
    tab.select_option("[name=author]", "T0")
    tab.fill("[name=text]", "x")
    tab.click('#list a[href$="/7-2"]')
    tab.get_by_role("button", name="S0", exact=True).click()
    tab.locator("[data-csv=dynamics]").focus()
    before = {part: tab.inner_text(part) for part in ("#problem", "#found", "#theme")}
    old = tab.query_selector("#dynamics")
    renewed(server)
    tab.wait_for_selector('body[data-version="2"]')
    assert tab.inner_text("#live") == "step 13 of 20" and "up to step 13" in tab.inner_text(".lead")
    assert "over 6 steps" in tab.inner_text("#dynamics") and not old.evaluate("one => one.isConnected")
    assert {part: tab.inner_text(part) for part in before} == before
    assert [tab.input_value(f"[name={name}]") for name in ("author", "text")] == ["T0", "x"]
    assert tab.locator("[name=run] option:checked").inner_text() == "population"
    assert tab.url.endswith("#p=population/7-2") and tab.locator('#list a[aria-current="true"]').count() == 1
    assert tab.evaluate("document.activeElement.dataset.csv") == "dynamics"
    assert tab.get_by_role("button", name="S0", exact=True).get_attribute("aria-pressed") == "true"
    assert tab.locator('#trueskill [data-mark="S0"].chosen').count() > 0


STOPS = {
    "a problem of the list": "#list li:nth-child(3) a",
    "a link of the contents": 'nav a[href="#dynamics"]',
    "a drawing": "#dynamics .drawing",
    "a member": '.members [data-member="S1"]',
}


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
def test_whoever_is_there_with_the_keyboard_stays_there(visits, server, stop):
    tab = visits.open(server.url)
    old = tab.query_selector(stop)
    old.focus()
    renewed(server)
    for one in ('<a href="#dynamics"', '<fieldset class="members"'):
        server.page = server.page.replace(one, f'{one} title="renewed"')
    tab.wait_for_selector('body[data-version="2"]')
    assert not old.evaluate("one => one.isConnected"), "else there is nothing to hold"
    assert tab.evaluate("stop => document.activeElement === document.querySelector(stop)", stop)


def test_where_the_problem_is_gone_the_keyboard_is_still_in_the_list(visits, server):
    tab = visits.open(server.url)
    tab.locator("#list a").nth(2).focus()
    gone = tab.evaluate("document.activeElement.getAttribute('href')")
    renewed(server)
    server.page = re.sub(r'(id="blob-explorer-0">)[^<]*(?=.*id="blob-explorer-1">([^<]*))', r"\1\2", server.page, flags=re.DOTALL)
    tab.wait_for_selector('body[data-version="2"]')
    assert tab.locator(f'#list a[href="{gone}"]').count() == 0, "the list is of another sample"
    assert tab.evaluate("document.activeElement.closest('#list') !== null")


def test_what_did_not_change_is_left_alone(visits, server):
    tab = visits.open(server.url)
    old = tab.query_selector("#samples")
    renewed(server)
    tab.wait_for_selector('body[data-version="2"]')
    assert old.evaluate("one => one.isConnected")


def test_a_server_that_is_gone_is_told_and_one_that_is_back_is_followed(visits, server):
    tab = visits.open(f"{server.url}#p=population/7-2")
    server.answers = 503
    tab.wait_for_selector("#live.lost")
    assert "the server has ended" in tab.inner_text("#live") and tab.locator("#problem h3").count() == 1
    server.answers = 200
    tab.wait_for_selector("#live:not(.lost)")
    assert tab.inner_text("#live") == "step 12 of 20"
    server.end()
    tab.wait_for_selector("#live.lost")
    assert visits.noise, "the browser itself reports what it could not load"
    visits.noise.clear()
    tab.context.close()
    visits.noise.clear()
