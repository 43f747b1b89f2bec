"""A command that is killed with SIGKILL leaves no process behind, and no lock."""

import sys

import pytest
from forked import forked
from orphans import outliving

from populora.runs.directory import locked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux ends children with their parent")
SHORT = ("--selfplay.prompts-per-type", 1, "--evaluation.every", 0)


@pytest.mark.slow
def test_a_killed_run_leaves_no_sandbox(tmp_path):
    run = tmp_path / "run"
    with forked("train", "tiny_1t1s", "--out", run, "--threads", 1, *SHORT, ready=(run / "metrics.jsonl").exists) as process:
        count, left = outliving(process.pid)
    assert count >= 2 and left == []


@pytest.mark.slow
def test_a_killed_evaluation_leaves_no_grader_and_frees_its_folder(tmp_path):
    folder = tmp_path / "e"
    verdicts = folder / "verdicts" / "tiny" / "base.jsonl"
    command = ("evaluate", "tiny", "--limit", 60, "--max-tokens", 48, "--workers", 1, "-o", folder)
    with forked(*command, ready=verdicts.exists) as process:
        count, left = outliving(process.pid)
    assert count >= 3 and left == []  # the grading process, and its zygotes
    with locked(folder):
        pass
