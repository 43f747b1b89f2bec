"""``populora watch`` as a process: it serves the page of a run that goes on to this machine alone, changes nothing, ends with Ctrl-C."""

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from populora.core.config import Config
from populora.runs.directory import new_run
from populora.runs.metrics_log import write_step


@pytest.mark.slow
def test_the_page_of_a_run_is_served_and_ctrl_c_ends_it(tmp_path, make_record):
    run = tmp_path / "run"
    with new_run(run, replace(Config(), steps=9), {"sandbox": "full"}):
        for step in (1, 2):
            write_step(run, make_record(step))
    before = sorted((path, path.stat().st_mtime_ns) for path in run.rglob("*"))
    command = (sys.executable, "-m", "populora.cli.main", "watch", str(run), "--port", "0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            address = re.match(r"http://127\.0\.0\.1:\d+/", line)
            assert address, line + process.stderr.read()
            html, version = (urlopen(address[0] + path, timeout=300).read().decode() for path in ("", "version"))  # noqa: S310
            assert f'data-version="{json.loads(version)["version"]}"' in html and "2 of 9" in html
            assert sorted((path, path.stat().st_mtime_ns) for path in run.rglob("*")) == before, "it only reads"
            with pytest.raises(HTTPError, match="501"):
                urlopen(address[0], b"data", timeout=300)  # noqa: S310
            process.send_signal(signal.SIGINT)
            assert process.wait(300) == 0
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()
