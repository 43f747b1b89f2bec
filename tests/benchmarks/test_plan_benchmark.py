"""The plan's benchmark: it runs end to end at toy size, and its ratios are those of what it measured."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("plan")


@pytest.mark.slow
def test_counts_of_a_toy_run_are_planned_exactly(bench, tmp_path: Path):
    threads = torch.get_num_threads()
    bench.main(["--toy", "--steps", "1", "--out", str(tmp_path / "results.json")])
    torch.set_num_threads(threads)
    found = json.loads((tmp_path / "results.json").read_text())
    for file in bench.FILES:
        measured, planned = found[file]["measured"], found[file]["planned with measured lengths"]
        assert (measured["responses"], measured["prompts"]) == (planned["responses"], planned["prompts"])
        assert measured["step seconds"] > 0 and planned["step seconds"] > 0


def test_committed_ratios_are_those_of_the_committed_times(bench):
    found = json.loads((FOLDER / "plan" / "results.json").read_text())
    assert not found["toy"]
    for file in bench.FILES:
        again = bench.ratios(found[file]["measured"], found[file]["planned with measured lengths"])
        assert again == pytest.approx(found[file]["measured / planned with measured lengths"], rel=0.02)
