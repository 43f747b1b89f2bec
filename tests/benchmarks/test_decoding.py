"""Benchmarks of decoding and of a member's memory: their arithmetic, and that the worker runs today's code."""

import json
import subprocess
import sys

import pytest
from benchmarks.measuring import ROOT

from benchmarks import decoding, large_base, member_memory


def test_a_step_is_compared_within_its_round_and_unequal_responses_are_counted():
    old = [{"seconds": 0.4, "tokens": 20, "digests": ["a", "b"]}, {"seconds": 0.2, "tokens": 20, "digests": ["a", "b"]}]
    new = [{"seconds": 0.1, "tokens": 20, "digests": ["a", "x"]}, {"seconds": 0.1, "tokens": 20, "digests": ["a", "x"]}]
    result = decoding.compare(old, new)
    assert result["old / new"] == {"median": 3.0, "min": 2.0, "max": 4.0} and result["equal responses"] == 0.5
    assert result["old, ms a step"]["median"] == 30.0


@pytest.mark.parametrize(("measured", "met"), [(11e6, True), (8.5e6, True), (13e6, False), (7e6, False)])
def test_a_members_memory_may_differ_from_the_plan_by_a_fifth(measured, met):
    assert member_memory.compare(measured, 10e6)["bar"]["met"] is met


def test_the_plan_counts_the_adapter_and_its_moments_and_gradient():
    hidden, layers, _, heads, kv_heads = member_memory.WIDTHS
    keys = hidden * kv_heads // heads
    adapter = layers * member_memory.RANK * (2 * 2 * hidden + 2 * (hidden + keys))
    assert member_memory.planned_bytes() == 4 * 4 * adapter


def test_each_case_of_the_large_base_may_be_no_slower_and_adapters_may_cost_eight_percent():
    seconds = {f"{age} {case}": [2.0 if age == "old" else 1.0] for case in large_base.CASES for age in ("old", "new")}
    seconds |= {"new train 8": [2.1], "new decode 0": [0.9]}
    missed = [name for name, bar in large_base.compare(seconds)["bars"].items() if not bar["met"]]
    assert missed == ["train 8: old / new", "decoding with 8 adapters / bare base"]


@pytest.mark.thorough
def test_a_worker_samples_and_is_deterministic():
    command = [sys.executable, str(ROOT / "benchmarks" / "speed" / "decoding_worker.py")]
    printed = subprocess.run(command, input="8\n8\n", capture_output=True, text=True, check=True).stdout
    first, again = map(json.loads, printed.splitlines())
    assert first["digests"] == again["digests"] and len(first["digests"]) == 8 and first["tokens"] == 8 * 96
