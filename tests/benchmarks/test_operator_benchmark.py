"""The operators' benchmark at toy shapes: every operator is measured, and a bar that is missed is said to be."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from populora.adapters.operators import OPERATORS

FOLDER = Path(__file__).parents[2] / "benchmarks"
PEFT = {
    "milliseconds": {name: {"median": 1.0, "min": 0.5, "max": 2.0} for name in ("populora", "PEFT")},
    "ratios": {"PEFT": {"median": 25.0, "min": 20.0, "max": 30.0}},
    "largest_relative_difference": 1e-6,
}


@pytest.fixture
def run(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER / "operators"))
    monkeypatch.delitem(sys.modules, "run", raising=False)
    module = importlib.import_module("run")
    for name, value in {"LAYERS": 2, "HIDDEN": 48, "KEY_VALUE": 40, "RANK": 4, "TARGETS": {"q": 48, "k": 40, "v": 40, "o": 48}}.items():
        monkeypatch.setattr(module, name, value)
    return module


@pytest.mark.slow
def test_every_operator_is_measured_and_tabulated(run):
    parents = [run.qwen_adapter(seed, layers=2) for seed in (1, 2)]
    found = {
        "machine": {"processor": "toy", "torch": "2", "load_before": 0.0},
        "rounds": 1,
        "children": run.measure_children(parents, 1),
        "measures": run.describe_children(parents),
        "dense": run.measure_dense(parents, 1),
        "peft": PEFT,
    }
    found["bars"] = run.bars(found)
    table = run.table(found)
    lines = table.splitlines()
    (header,) = [line for line in lines if line.startswith("| operator |")]
    rows = [line for line in lines if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == [*OPERATORS, "x1"] and {row.count("|") for row in rows} == {header.count("|")}
    assert set(found["children"]) == set(found["measures"]) == set(OPERATORS)
    assert found["dense"]["modules_of_each_shape"] == 4


def test_a_missed_bar_is_said_to_be(run):
    seconds = {name: {"median": 0.6, "min": 0.5, "max": 0.7} for name in OPERATORS} | {"x3": {"median": 0.31, "min": 0.3, "max": 0.4}}
    seconds |= {name: {"median": 0.1, "min": 0.1, "max": 0.1} for name in ("m1", "m3", "m6")}
    found = run.bars({"children": seconds, "dense": {"full_svd_child": 300.0}, "peft": PEFT})
    assert [bar["met"] for bar in found.values()] == [False, False, False, True, True]
    assert "x3" in next(iter(found))


def test_a_replacement_is_measured_with_what_it_writes_against_its_own_step(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER / "operators"))
    shares = importlib.import_module("replacement").shares
    metrics = [{"evolution/children": float(born)} for born in (0, 2, 0, 0, 0)]

    def timings(evolve: float):  # what a step writes is booked with the next one
        return [
            {"seconds/evolve": seconds, "seconds/write": write, "seconds/step": 10.0}
            for seconds, write in ((0.001, 0.0), (evolve, 0.1), (0.001, 0.13), (0.001, 0.1), (0.001, 0.1))
        ]

    found = shares(timings(0.02), metrics)
    assert found["replacements"] == [{"children": 2.0, "evolve_seconds": 0.02, "extra_write_seconds": 0.03, "step_seconds": 10.0}]
    assert found["percent_of_step"] == {"median": 0.5, "largest": 0.5} and found["met"]
    assert not shares(timings(0.08), metrics)["met"]
