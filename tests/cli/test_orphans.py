"""A command that is killed with SIGKILL leaves no process behind, and no lock."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from orphans import outliving, started

from populora.runs.directory import locked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux ends children with their parent")
POPULORA = (sys.executable, "-m", "populora.cli.main")


@pytest.mark.slow
def test_a_killed_run_leaves_no_sandbox(tmp_path: Path):
    run = tmp_path / "run"
    with started(*POPULORA, "train", "tiny_1t1s", "--out", run, "--threads", 1, ready=(run / "metrics.jsonl").exists) as process:
        count, left = outliving(process.pid)
    assert count >= 2 and left == []


@pytest.mark.slow
def test_a_killed_evaluation_leaves_no_grader_and_frees_its_folder(tmp_path: Path):
    folder = tmp_path / "e"
    verdicts = folder / "verdicts" / "tiny" / "base.jsonl"
    command = (*POPULORA, "evaluate", "tiny", "--limit", 60, "--max-tokens", 48, "--workers", 1, "-o", folder)
    with started(*command, ready=verdicts.exists) as process:
        count, left = outliving(process.pid)
    assert count >= 3 and left == []  # the grading process, and its zygotes
    with locked(folder):
        pass


BUILD = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from experiments.tiny_base.pretrain import pretrain
from experiments.tiny_base.data import PretrainConfig, Stage
if __name__ == "__main__":
    stages = (Stage(1e-3, (("short", 10_000),), decay_shards=1),)
    config = PretrainConfig(hidden=32, layers=1, heads=2, kv_heads=1, feed_forward=32, stages=stages, shard_documents=24, batch_tokens=1024)
    pretrain(config, Path("build"))
"""


@pytest.mark.slow
def test_a_killed_build_of_the_base_leaves_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("build.py").write_text(BUILD)
    log = Path("build/training_log.jsonl")
    with started(sys.executable, "build.py", ready=lambda: log.exists() and log.stat().st_size > 0) as process:
        count, left = outliving(process.pid, frozen=False)  # Python's tracker of resources ends by itself, which takes a moment
    assert count >= 3 and left == []  # two workers, and the process that draws shards ahead
