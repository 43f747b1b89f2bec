"""The table of speed: what is on its side of the bar is met, what is not is said to be missed."""

import importlib
from pathlib import Path

import pytest

SPEED = Path(__file__).parents[2] / "benchmarks" / "speed"


@pytest.fixture
def table(monkeypatch):
    monkeypatch.syspath_prepend(str(SPEED))
    return importlib.import_module("table")


def test_a_bar_is_met_or_missed_by_the_median(table):
    bars = [table.Bar("time", ("file", "time"), "<=", 1.06), table.Bar("speed", ("file", "speed"), ">=", 4.0)]
    good = {"file": {"time": {"median": 1.06, "min": 1.0, "max": 1.2}, "speed": 4.0}}
    bad = {"file": {"time": {"median": 1.07, "min": 1.0, "max": 1.2}, "speed": 3.99}}
    assert table.table(good, bars).splitlines()[2:] == ["| time | <= 1.06 | 1.06 (1.00 to 1.20) |  |", "| speed | >= 4 | 4.00 |  |"]
    assert table.table(bad, bars).count("**missed**") == 2


def test_a_bar_without_a_figure_stops(table):
    with pytest.raises(KeyError, match="step"):
        table.table({"multi_lora": {}}, [table.Bar("x", ("step", "y"), "<=", 1.0)])
