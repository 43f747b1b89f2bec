"""The room gate: what it trains moves, and its bars can fail."""

import pytest

from populora.base import room
from populora.base.room import measure_room, room_passed
from populora.cli import main
from populora.commands.base import Room, _room_config


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
    assert {name for name, holds in room_passed(results).items() if not holds} == failed


@pytest.mark.parametrize("bad", [["room", "--steps", "0"], ["room", "--seeds"], ["gates", "--prompts-per-type", "0"]])
def test_a_gate_without_anything_to_measure_is_refused(bad, capsys):
    assert main(["base", *bad]) == 2
    assert "expected 1 or more, got 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (["room", "--rank", "0"], "setting 'lora.rank': expected more than 0"),
        (["room", "--threads", "-1"], "setting 'threads': expected 0 or more"),
        (["gates", "--threads", "-1"], "setting 'threads': expected 0 or more"),
        (["room", "--base", "typo"], "expected a folder or hub name"),
    ],
)
def test_a_gate_with_impossible_settings_is_refused_and_the_last_result_kept(bad, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = tmp_path / "benchmarks" / "base" / "room_curves.jsonl"
    kept.parent.mkdir(parents=True)
    kept.write_text("measured")
    assert main(["base", *bad]) == 2
    assert message in capsys.readouterr().err
    assert kept.read_text() == "measured"


def test_a_gate_that_cannot_write_says_so_before_it_works(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["base", "room", "--log", str(tmp_path / "file" / "log.jsonl")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_a_student_trained_alone_is_measured_before_and_after(monkeypatch):
    monkeypatch.setattr(room, "SUITE_PER_TYPE", 4)
    lines = []
    found = measure_room(_room_config(Room(threads=1), seed=0), steps=2, per_type=1, samples=4, log=lines.append)
    assert [line["step"] for line in lines] == [1, 2]
    assert set(found["before"]["accuracy"]) == {"code_i", "code_o", "code_f", "all"}
    assert found["gain"] == pytest.approx(found["after"]["accuracy"]["all"] - found["before"]["accuracy"]["all"], abs=1e-3)
    assert found["before"]["reasoning"] < 0.5
