"""The reader's loop (examples/loop.py) and `populora train` are one method."""

import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from small_run import SMALL, Silent

from populora.runs.reader import load_run
from populora.training.loop import train

LOOP = Path(__file__).parents[2] / "examples" / "loop.py"


@pytest.mark.slow
def test_the_loop_is_short_and_gives_the_adapters_that_train_gives(tmp_path, capsys):
    config = replace(SMALL, steps=3, evolution=replace(SMALL.evolution, every=2))
    train(config, tmp_path / "run", Silent())
    members = runpy.run_path(str(LOOP))["co_evolve"](config)
    trained = load_run(tmp_path / "run")
    assert {name: adapter.fingerprint() for name, adapter in members.items()} == {
        name: trained.member(name).fingerprint() for name in trained.members
    }
    printed = capsys.readouterr().out
    assert printed.count("step ") == 3 and printed.count("is now a child of") == len(trained.children) > 0
    assert len(LOOP.read_text().splitlines()) <= 80
