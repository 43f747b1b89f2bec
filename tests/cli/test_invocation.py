"""Commands in messages: each can be pasted as it is, wherever populora is installed and whatever the shell searches."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from populora.core.invocation import command, install_extra, pasteable, program
from populora.runs.metrics_log import latest_run

SCRIPT = Path(sys.executable).parent / "populora"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment's script in ``.venv/bin`` of the working folder, which the shell does not search."""
    scripts = tmp_path / ".venv" / "bin"
    scripts.mkdir(parents=True)
    for name in ("populora", "python"):
        (scripts / name).write_text("#!/bin/sh\n")
        (scripts / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(scripts / "python"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return scripts


def test_an_environment_that_is_not_active_is_named_from_the_working_folder(environment, monkeypatch):
    assert program() == ".venv/bin/populora" and command("report", Path("my runs/x")) == ".venv/bin/populora report 'my runs/x'"
    assert install_extra("trackio") == ".venv/bin/python -m pip install 'trackio>=0.40'"
    elsewhere = environment.parents[1] / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert program() == str(environment / "populora")


def test_an_active_environment_needs_no_path_and_another_populora_does(environment, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{environment}:/usr/bin")
    assert program() == "populora"
    other = tmp_path / "other"
    other.mkdir()
    (other / "populora").write_text("#!/bin/sh\n")
    (other / "populora").chmod(0o755)
    monkeypatch.setenv("PATH", f"{other}:{environment}")
    assert program() == ".venv/bin/populora"


def test_only_commands_in_messages_are_rewritten(environment):
    text = "populora: `populora resume x` goes on; populora itself, `populoras` and `ls` stay"
    assert pasteable(text) == text.replace("`populora resume", "`.venv/bin/populora resume")


@pytest.mark.skipif(not SCRIPT.exists(), reason="populora's script is not installed in this environment")
def test_the_command_in_an_error_runs_in_the_shell_that_shows_it(tmp_path):
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}
    failed = subprocess.run([str(SCRIPT), "train", "tinny"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    words = shlex.split(failed.stderr.split("`")[1])
    listed = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert "tiny_4t4s" in listed.stdout


def test_the_latest_run_is_the_one_that_was_written_last():
    for index, (name, file) in enumerate([("b", "config.json"), ("a", "config.json"), ("c", "config.json"), ("b", "metrics.jsonl")]):
        folder = Path("runs") / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text('{"population": {}}')
        os.utime(folder / file, (1000 + index, 1000 + index))
    (Path("runs") / "no-run").mkdir()
    (Path("runs") / "retention").mkdir()
    (Path("runs/retention/config.json")).write_text('{"seeds": [0]}')  # a grid of `populora retention`, newer than all
    assert latest_run() == Path("runs/b")
    (Path("runs/a") / "report.html").write_text("a page of an older run makes it no newer")
    assert latest_run() == Path("runs/b")
