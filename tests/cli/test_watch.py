"""``populora watch`` as a process: it serves the page of a run that goes on to this machine alone, changes nothing, ends with Ctrl-C."""

import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from forked import forked

from populora.core.config import Config
from populora.runs.directory import new_run
from populora.runs.metrics_log import write_step


@pytest.mark.slow
def test_the_page_of_a_run_is_served_and_ctrl_c_ends_it(tmp_path, make_record, monkeypatch):
    monkeypatch.setattr("populora.report.page.svg", lambda figure: f"<svg>{figure.name}</svg>")  # drawing takes seconds
    run = tmp_path / "run"
    with new_run(run, replace(Config(), steps=9), {"sandbox": "full"}):
        for step in (1, 2):
            write_step(run, make_record(step))
    before = sorted((path, path.stat().st_mtime_ns) for path in run.rglob("*"))
    printed, errors = Path("printed"), Path("errors")

    def address():
        return re.match(r"(http://127\.0\.0\.1:\d+/) .*\n", printed.read_text() if printed.exists() else "")

    with forked("watch", run, "--port", 0, ready=address, out=printed, errors=errors) as process:
        html, version = (urlopen(address()[1] + path, timeout=300).read().decode() for path in ("", "version"))  # noqa: S310
        assert f'data-version="{json.loads(version)["version"]}"' in html and "2 of 9" in html
        assert sorted((path, path.stat().st_mtime_ns) for path in run.rglob("*")) == before, "it only reads"
        with pytest.raises(HTTPError, match="501"):
            urlopen(address()[1], b"data", timeout=300)  # noqa: S310
        os.kill(process.pid, signal.SIGINT)
        process.join(300)
        assert (process.exitcode, errors.read_text().splitlines()[-1]) == (0, "populora watch: ended")
