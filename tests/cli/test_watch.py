"""``populora watch`` as a process: it serves the page of a run that goes on to this machine alone, changes nothing, ends with Ctrl-C."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

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


def get(connection: http.client.HTTPConnection, path: str) -> str:
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.status == 200
    return answer.read().decode()


@pytest.mark.slow
def test_the_page_of_a_run_is_served_and_ctrl_c_ends_it(run):
    before = sorted((path, path.stat().st_mtime_ns) for path in run.rglob("*"))
    with watching(run) as (process, connection):
        html, version = get(connection, "/"), json.loads(get(connection, "/version"))["version"]
        assert f'data-version="{version}"' in html and "2 of 9" in html
        assert sorted((path, path.stat().st_mtime_ns) for path in run.rglob("*")) == before, "it only reads"
        connection.request("POST", "/")
        assert connection.getresponse().status == 501
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert "Traceback" not in process.stderr.read()  # type: ignore[union-attr]
