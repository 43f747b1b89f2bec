import subprocess
import sys

import pytest
from benchmarks.measuring import ROOT

from benchmarks import old_and_new

SMALL = ("--selfplay.prompts-per-type=1", "--selfplay.rho-samples=2", "--selfplay.max-response-tokens=48", "--selfplay.seeds=16")


def row(seconds: float, tokens: float) -> dict[str, float]:
    return {"wall": seconds, "tokens": tokens}


def test_a_step_must_be_faster_and_have_as_many_tokens():
    results = {
        "2T+2S": {"old": [row(18.0, 100.0), row(40.0, 101.0)], "new": [row(10.0, 100.0), row(20.0, 100.0)]},
        "4T+4S": {"old": [row(17.0, 103.0)], "new": [row(10.0, 100.0)]},
    }
    judged = old_and_new.judge(results)
    assert judged["2T+2S"]["old / new"]["wall"] == {"median": 1.9, "min": 1.8, "max": 2.0}
    assert [bar["found"] for bar in judged["bars"].values()] == [1.9, 0.01, 1.7, 0.03]
    assert [bar["met"] for bar in judged["bars"].values()] == [True, True, False, False]


def test_a_step_is_the_mean_of_the_counted_ones_without_the_writing_of_logs():
    timings = [{"seconds/step": 8.0, "seconds/write": 1.0, "seconds/propose": 1.0, "seconds/solve": 2.0}]
    timings += [{"seconds/step": 9.5, "seconds/write": 0.5, "seconds/propose": 2.0, "seconds/solve": 3.0}]
    metrics = [{"tokens/propose": 100.0, "tokens/solve": 1900.0}, {"tokens/propose": 400.0, "tokens/solve": 1600.0}]
    assert old_and_new.mean_step(timings, metrics, cpu=20.0) == {
        "wall": 8.0, "cpu": 10.0, "sampling": 4.0, "tokens": 2000.0,
        "wall, for 1000 tokens": 4.0, "cpu, for 1000 tokens": 5.0, "sampling, for 1000 tokens": 2.0,
    }  # fmt: skip


def test_a_run_that_fails_stops_the_measurement(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(SystemExit, match="ended with status 3, before line 1 of"):
        old_and_new.cpu_seconds(process, tmp_path / "metrics.jsonl", 1)


@pytest.mark.thorough
def test_the_steps_of_this_source_are_measured():
    measured = old_and_new.measure(ROOT / "src", 1, 2, SMALL)
    assert measured["tokens"] > 0 and 0 < measured["sampling"] < measured["wall"] and measured["cpu"] > 0
