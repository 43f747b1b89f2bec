"""What `populora watch` serves: to this machine alone, and without an end, whatever becomes of the run's files meanwhile."""

from __future__ import annotations

import http.client
import json
import os
import socket
import struct
import time
from dataclasses import replace
from pathlib import Path

import pytest

from populora.core.config import Config
from populora.core.errors import ConfigError, RunDirectoryError
from populora.report import server
from populora.report.server import Followed, last_step, serving
from populora.runs.directory import new_run
from populora.runs.metrics_log import METRICS, write_step


@pytest.fixture
def run(tmp_path: Path, make_record) -> Path:
    folder = tmp_path / "run"
    with new_run(folder, replace(Config(), steps=9), {"sandbox": "full"}):
        for step in (1, 2):
            write_step(folder, make_record(step))
    return folder


def ask(connection: http.client.HTTPConnection, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def followed(run: Path, make=lambda version: f"page {version}") -> Followed:
    found = Followed(run, 9, make)
    found.renew()
    return found


def test_a_page_is_made_anew_only_for_somebody_who_looks(run, make_record):
    made: list[str] = []
    page = followed(run, lambda version: made.append(version) or f"page {version}")
    write_step(run, make_record(3))
    assert made == ["2"] and not page.due(), "nobody has asked"
    assert page.status()["text"] == "step 3 of 9, written just now, this page: step 2"
    assert page.due()
    page.renew()
    assert page.html == "page 3" and not page.due(), "nothing is new"


def test_how_long_ago_a_step_was_finished_is_told(run):
    page = followed(run)
    os.utime(run / METRICS, (time.time() - 600,) * 2)
    assert page.status()["text"] == "step 2 of 9, written 10 min ago"


@pytest.fixture
def quick(monkeypatch):
    """No pause between pages."""
    monkeypatch.setattr(server, "SHORTEST", 0.01)


def answered(address: str, meets, seconds: float = 20) -> str:
    """The line that an open page is told, once it ``meets`` what is waited for."""
    connection, until, text = http.client.HTTPConnection(address.split("/")[2], timeout=20), time.monotonic() + seconds, ""
    while time.monotonic() < until:
        status, body = ask(connection, "/version")
        assert status == 200
        text = json.loads(body)["text"]
        if meets(text):
            break
        time.sleep(0.1)
    assert meets(text), text
    return text


def test_a_run_that_cannot_be_read_for_a_while_is_followed_again(run, make_record, quick):
    with serving(Followed(run, 9, lambda version: f"page {version}"), 0) as address:
        whole = (run / METRICS).read_bytes()
        for damage in (b"no JSON\n", b'{"step": 1e999}\n'):
            (run / METRICS).write_bytes(whole + damage)
            answered(address, lambda text: "damaged" in text and "this page: step 2" in text)
        (run / METRICS).write_bytes(whole)
        answered(address, lambda text: text == "step 2 of 9, written just now")
        write_step(run, make_record(3))
        answered(address, lambda text: text == "step 3 of 9, written just now")


@pytest.mark.slow
def test_whatever_keeps_a_page_from_being_made_it_is_tried_again(run, make_record, quick):
    def make(version: str) -> str:
        if troubles and version == "3":
            raise troubles.pop()
        return f"page {version}"

    troubles: list[Exception] = [OSError("half a file"), ZeroDivisionError("nothing"), RunDirectoryError("a table is gone")]
    with serving(Followed(run, 9, make), 0) as address:
        write_step(run, make_record(3))
        answered(address, lambda text: text.endswith("cannot be renewed: a table is gone"))
        answered(address, lambda text: text.endswith("cannot be renewed: OSError: half a file"))
        answered(address, lambda text: text == "step 3 of 9, written just now")


def test_a_first_page_that_cannot_be_made_is_an_error(run):
    (run / METRICS).write_text("no JSON\n")
    with pytest.raises(RunDirectoryError, match="damaged"):
        followed(run)


def test_hosts_are_told_by_name_whatever_the_port(run):
    with serving(Followed(run, 9, lambda version: f"page {version}"), 0) as address:
        connection = http.client.HTTPConnection(address.split("/")[2], timeout=20)
        for host in ("127.0.0.1", "localhost", "localhost:8765"):
            assert ask(connection, "/", Host=host) == (200, "page 2")
        for host in ("attacker.example", "127.0.0.1.attacker.example:80", "[::1]:80", ""):
            assert ask(connection, "/", Host=host)[0] == 403


def test_a_tab_that_is_closed_meanwhile_leaves_no_trace(run, capfd):
    with serving(Followed(run, 9, lambda _: "x" * 50_000_000), 0) as address:
        host, port = address.split("/")[2].split(":")
        for _ in range(3):
            tab = socket.create_connection((host, int(port)))
            tab.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, not end
            tab.sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
            tab.recv(10)
            tab.close()
        time.sleep(0.5)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("ending", ["", '{"step": 4, "half'])
def test_the_last_step_is_that_of_the_last_whole_line(run, ending, monkeypatch):
    with (run / METRICS).open("a") as file:
        file.write(ending)
    monkeypatch.setattr(server, "TAIL", 1 + max(map(len, (run / METRICS).read_bytes().split(b"\n"))) + len(ending))
    assert last_step(run) == 2


def test_a_run_without_a_finished_step_is_at_0(tmp_path):
    assert last_step(tmp_path) == 0


def test_a_port_that_is_taken_is_one_error_before_anything_is_made(run):
    page = Followed(run, 9, lambda version: f"page {version}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on port {port}"), serving(page, port):
            pass
    assert page.html == ""
