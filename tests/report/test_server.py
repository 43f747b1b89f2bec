"""`populora watch` serves one page to this machine alone, rebuilds it when it is stale, and survives what happens to the run's files."""

import http.client
import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from populora.core.config import Config
from populora.core.errors import ConfigError, RunDirectoryError
from populora.report import server
from populora.report.server import LivePage, serve_page
from populora.runs.directory import new_run
from populora.runs.metrics_log import METRICS, write_step


@pytest.fixture
def run(tmp_path: Path, make_record) -> Path:
    folder = tmp_path / "run"
    with new_run(folder, replace(Config(), steps=9), {"sandbox": "full"}):
        write_step(folder, make_record(1))
    return folder


@pytest.fixture
def no_pause(monkeypatch):
    """No pause between builds."""
    monkeypatch.setattr(server, "MIN_PAUSE", 0.0)
    monkeypatch.setattr(server, "PAUSE_FACTOR", 0.0)


def built(run: Path, build: Callable[[str], str]) -> LivePage:
    page = LivePage(run, build)
    page.rebuild()
    return page


def get(address: str, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address.split("/")[2], timeout=300)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_a_poll_rebuilds_the_page_when_a_step_is_finished_but_not_soon_after_a_build(run, make_record, monkeypatch):
    versions: list[str] = []
    page = built(run, lambda version: versions.append(version) or f"page {version}")
    assert page.poll() == {"version": versions[0], "text": "last step finished just now"} and len(versions) == 1
    write_step(run, make_record(2))
    assert page.poll() == {"version": versions[0], "text": "last step finished just now, this page is older"}
    monkeypatch.setattr(page, "_next_build", 0.0)
    assert page.poll()["version"] == versions[1] != versions[0] and page.html == f"page {versions[1]}"


def test_the_status_says_when_the_last_step_was_finished(run, tmp_path):
    os.utime(run / METRICS, (time.time() - 600,) * 2)
    assert built(run, str).poll()["text"] == "last step finished 10 min ago"
    assert built(tmp_path / "empty", str).poll()["text"] == "no step is finished yet"


@pytest.mark.parametrize(("error", "text"), [(RunDirectoryError("a table is gone"), "a table is gone"), (OSError("half"), "OSError: half")])
def test_a_page_that_cannot_be_rebuilt_stays_and_is_tried_again(run, make_record, no_pause, error, text):
    def build(version: str) -> str:
        if errors and version != first:
            raise errors.pop()
        return version

    errors, first = [error], str((run / METRICS).stat().st_mtime_ns)
    page = built(run, build)
    write_step(run, make_record(2))
    assert page.poll() == {"version": first, "text": f"cannot rebuild this page: {text}"} and page.html == first
    assert page.poll()["text"] == "last step finished just now" and page.html != first


def test_only_the_page_is_served_and_only_under_names_of_this_machine(run):
    with serve_page(LivePage(run, lambda _: "the page"), 0) as address:
        for host in ("127.0.0.1", "localhost", "localhost:8765"):
            assert get(address, "/?x=1", Host=host) == (200, "the page")
        for host in ("attacker.example", "127.0.0.1.attacker.example:80", "[::1]:80", ""):
            assert get(address, "/", Host=host)[0] == 403
        assert get(address, "/config.json")[0] == get(address, "/../run/config.json")[0] == 404
        assert json.loads(get(address, "/version")[1])["text"] == "last step finished just now"


def test_a_port_that_is_taken_is_one_error(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        page = LivePage(run, str)
        with pytest.raises(ConfigError, match=f"cannot listen on port {port}"), serve_page(page, port):
            pass
        assert page.html == "", "refused before the first page is built"
