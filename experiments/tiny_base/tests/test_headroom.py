"""The headroom test: training changes the student, and each bar can fail."""

import re

import pytest
from experiments.tiny_base import headroom
from experiments.tiny_base.__main__ import Headroom, _headroom_config, main
from experiments.tiny_base.headroom import measure_headroom, passed

from populora.core.errors import ConfigError, PopuloraError, RunDirectoryError


def result(gain, before=20.0, after=60.0):
    return {"gain": gain, "before": {"tokens": before}, "after": {"tokens": after}}


@pytest.mark.parametrize(
    ("results", "failed"),
    [
        ([result(0.12), result(0.14), result(0.13)], set()),
        ([result(0.06), result(0.07), result(0.08)], {"mean gain >= 0.10"}),
        ([result(0.01), result(0.02), result(0.60)], {"interval of the gain excludes 0"}),
        ([result(0.12), result(0.14, after=19.0), result(0.13)], {"answers are longer"}),
        ([result(0.12)], {"interval of the gain excludes 0"}),  # one seed has no interval
    ],
)
def test_gain_must_be_large_certain_and_come_with_longer_answers(results, failed):
    assert {name for name, holds in passed(results).items() if not holds} == failed


@pytest.mark.parametrize("bad", [["headroom", "--steps", "0"], ["headroom", "--seeds"], ["acceptance", "--prompts-per-type", "0"]])
def test_a_test_without_anything_to_measure_is_refused(bad):
    with pytest.raises(ConfigError, match="expected 1 or more, got 0"):
        main(bad)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (["headroom", "--rank", "0"], "setting 'lora.rank': expected more than 0"),
        (["headroom", "--threads", "-1"], "setting 'threads': expected 0 or more"),
        (["acceptance", "--threads", "-1"], "setting 'threads': expected 0 or more"),
        (["headroom", "--base", "typo"], "expected a folder or hub name"),
    ],
)
def test_a_test_with_impossible_settings_is_refused_and_the_last_result_kept(bad, message, tmp_path):
    kept = tmp_path / "measured"
    kept.write_text("measured")
    with pytest.raises(PopuloraError, match=re.escape(message)):
        main([*bad, "--out", str(kept)])
    assert kept.read_text() == "measured"


def test_a_test_that_cannot_write_says_so_before_it_works(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="cannot write"):
        main(["headroom", "--log", str(tmp_path / "file" / "log.parquet")])


def test_a_student_trained_alone_is_measured_before_and_after(monkeypatch):
    monkeypatch.setattr(headroom, "SUITE_PER_TYPE", 4)
    lines = []
    result = measure_headroom(_headroom_config(Headroom(threads=1), seed=0), steps=2, per_type=1, samples=4, log=lines.append)
    assert [line["step"] for line in lines] == [1, 2]
    assert set(result["before"]["accuracy"]) == {"code_i", "code_o", "code_f", "all"}
    assert result["gain"] == pytest.approx(result["after"]["accuracy"]["all"] - result["before"]["accuracy"]["all"], abs=1e-3)
    assert result["before"]["reasoning"] < 0.5
