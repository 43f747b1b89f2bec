"""The commands for a GPU, at toy size through the same code: files, tables, and the minutes that they may take."""

import json
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from benchmarks.speed.gpu_cases import Limits
from benchmarks.speed.gpu_plan import REAL, TOY

from benchmarks import gpu, gpu_steps

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU the commands measure it, for minutes")
CASES = [case.name for case in gpu.ordered_cases(TOY, ["toy"])]


@pytest.fixture
def no_limits(monkeypatch) -> None:
    """Do not measure those of the card."""
    monkeypatch.setattr(gpu, "measured_limits", lambda plan, rounds: Limits(1.0, 1.0))


@pytest.fixture
def fake_clock(monkeypatch) -> SimpleNamespace:
    """A clock whose ``now`` the test sets."""
    fake = SimpleNamespace(now=0.0)
    monkeypatch.setattr(gpu, "clock", lambda: fake.now)
    return fake


def test_one_case_of_each_kind_comes_first_at_each_shape():
    cases = gpu.ordered_cases(REAL, list(REAL.bases))
    small, large = REAL.bases
    assert [(case.shape, case.kind) for case in cases[:4]] == [
        (small, "decoding"), (small, "training"), (large, "decoding"), (large, "training"),
    ]  # fmt: skip
    assert [case.shape for case in cases[4:]] == [large] * 5 + [small] * 5
    assert len(set(cases)) == 14 and {case.size for case in cases[:4]} == {32, 8192}


def test_no_case_begins_that_would_not_end_in_time(fake_clock):
    cases = gpu.ordered_cases(REAL, list(REAL.bases))

    def begun(deadline: float) -> Iterator[gpu.GpuCase]:
        fake_clock.now = 0.0
        for case in gpu.affordable(REAL, cases, deadline):
            yield case
            fake_clock.now += case.work(REAL) / (1e12 if case.kind == "training" else 1e10)

    assert len(list(begun(1e9))) == 14
    whole = fake_clock.now
    for share in (0.2, 0.5, 0.8):
        names = [case.name for case in begun(share * whole)]
        assert 4 <= len(names) < 14 and fake_clock.now < share * whole
    assert list(begun(0.0)) == []


def test_the_first_case_of_a_larger_shape_is_judged_by_its_weights(fake_clock):
    small, large = (gpu.GpuCase(shape, "training", "none", 8192) for shape in REAL.bases)
    names = []
    for case in gpu.affordable(REAL, [small, large, small], 60.0):
        names.append(case.shape)
        fake_clock.now += 10.0
    assert names == [small.shape, small.shape]


@pytest.mark.thorough
def test_the_command_writes_each_case_and_its_table_names_all(tmp_path, capsys):
    gpu.main(["--rounds", "1", "--out", str(tmp_path / "gpu.json")])
    results, printed = json.loads((tmp_path / "gpu.json").read_text()), capsys.readouterr().out
    assert list(results["shapes"]["toy"]) == CASES and results["left_out"] == {"toy": []}
    decoding, training = results["shapes"]["toy"]["decoding, 16 rows"], results["shapes"]["toy"][CASES[1]]
    assert {"base only", "8 adapters", "16 adapters"} < decoding.keys() and {"1 adapter", "8 adapters", "16 adapters"} < training.keys()
    assert all(printed.count(name) > 3 for name in CASES) and gpu.LEFT_OUT not in printed


def test_cases_that_are_left_out_are_named_in_file_and_table(tmp_path, capsys, monkeypatch, fake_clock, no_limits):
    def work(*arguments) -> dict:
        fake_clock.now += 45.0
        return {"1 adapter": {"tokens_per_second": {"median": 5.0}, "of_peak": 0.5}}

    monkeypatch.setattr(gpu, "decoding", work)
    monkeypatch.setattr(gpu, "training", work)
    gpu.main(["--rounds", "1", "--minutes", "2", "--out", str(tmp_path / "gpu.json")])
    results, printed = json.loads((tmp_path / "gpu.json").read_text()), capsys.readouterr().out
    assert list(results["shapes"]["toy"]) == CASES[:2] and results["left_out"] == {"toy": CASES[2:]}
    assert printed.count(gpu.LEFT_OUT) == 2 and all(name in printed for name in CASES[2:])
    assert fake_clock.now <= 120.0


@pytest.mark.slow
def test_whole_steps_are_written_with_their_phases(tmp_path, capsys):
    gpu_steps.main(["--steps", "2", "--out", str(tmp_path / "steps.json")])
    results = json.loads((tmp_path / "steps.json").read_text())
    assert results == json.loads(capsys.readouterr().out)
    steps = results["shapes"]["toy"]
    assert steps["first step"]["seconds/step"] > 0 and steps["later steps"]["seconds/update"]["median"] > 0
    assert steps["last step"]["teacher/validity/code_o"] > 0


@pytest.mark.parametrize("command", [gpu, gpu_steps])
def test_a_rehearsal_without_a_gpu_overwrites_no_committed_result(command, monkeypatch, no_limits):
    paths = []
    monkeypatch.setattr(command, "save_results" if command is gpu else "write_results", lambda path, results: paths.append(path))
    monkeypatch.setattr(command, "measure", lambda plan, cases, *rest: ((case, "measured") for case in cases) if command is gpu else {})
    command.main([])
    assert set(paths) == {None}
