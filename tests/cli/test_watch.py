"""``populora watch`` as a process: it serves the page of a run that goes on to this machine alone, changes nothing, ends with Ctrl-C."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from populora.cli.main import main
from populora.core.config import Config
from populora.runs.directory import new_run
from populora.runs.metrics_log import write_step

CONFIG = replace(Config(), steps=9)


@pytest.fixture
def run(tmp_path: Path, make_record) -> Path:
    folder = tmp_path / "run"
    with new_run(folder, CONFIG, {"sandbox": "full"}):
        for step in (1, 2):
            write_step(folder, make_record(step))
    return folder


@contextmanager
def watching(run: Path) -> Iterator[tuple[subprocess.Popen[str], http.client.HTTPConnection]]:
    command = (sys.executable, "-m", "populora.cli.main", "watch", str(run), "--port", "0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()  # type: ignore[union-attr]
            found = re.match(r"http://127\.0\.0\.1:(\d+)/", line)
            assert found, line + process.stderr.read()  # type: ignore[union-attr]
            yield process, http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
        finally:
            process.kill()


def ask(connection: http.client.HTTPConnection, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.slow
def test_the_page_follows_a_run_and_ctrl_c_ends_it(run, make_record):
    before = bytes_of(run)
    with watching(run) as (process, connection):
        status, html = ask(connection, "/")
        assert status == 200 and 'data-version="2"' in html and "2 of 9" in html
        assert json.loads(ask(connection, "/version")[1])["version"] == "2"
        assert bytes_of(run) == before, "it only reads"
        write_step(run, make_record(3))
        until = time.monotonic() + 60
        while json.loads(ask(connection, "/version")[1])["version"] != "3" and time.monotonic() < until:
            time.sleep(0.5)
        assert 'data-version="3"' in ask(connection, "/")[1]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert "Traceback" not in process.stderr.read()  # type: ignore[union-attr]


@pytest.mark.slow
def test_nothing_but_the_page_is_answered_and_to_this_machine_alone(run):
    with watching(run) as (_, connection):
        assert ask(connection, "/config.json")[0] == 404
        assert ask(connection, "/../run/config.json")[0] == 404
        assert ask(connection, "/", method="POST")[0] == 501
        assert ask(connection, "/", Host="attacker.example:80")[0] == 403
        assert ask(connection, "/?x=1")[0] == 200


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "no run was named"),
        (["nowhere"], "not a run directory"),
        (["RUN", "--port", "70000"], "expected 0 to 65535"),
        (["RUN", "--smooth", "0"], "--smooth is 0"),
    ],
)
def test_bad_arguments_are_one_error(run, given, told, capsys):
    assert main(["watch", *(str(run) if one == "RUN" else one for one in given)]) == 2
    assert told in capsys.readouterr().err
