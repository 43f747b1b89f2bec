"""Reading a run from the command line: problems, answers, verdicts and rewards; and taking an adapter out."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from written_members import adapters_only

from populora.adapters.adapter import Adapter
from populora.adapters.peft_format import load_adapter
from populora.cli.main import main
from populora.core.config import BaseConfig, Config
from populora.engine.model.loading import base_folder, base_name
from populora.runs.checkpoint import Checkpoint, save_checkpoint
from populora.runs.directory import new_run
from populora.runs.metrics_log import write_step
from populora.runs.style import printable


@pytest.fixture
def run(tmp_path: Path, make_record) -> str:
    folder = tmp_path / "run"
    with new_run(folder, replace(Config(), steps=2), {}):
        write_step(folder, make_record(1))
        record = make_record(2)
        hostile = record.attempts[0]._replace(generation=replace(record.attempts[0].generation, text="[red]not markup[/red] \x1b[2Jwipe"))
        write_step(folder, make_record(2, attempts=(hostile, *record.attempts[1:])))
    return str(folder)


def show(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["show", *arguments]) == 0
    return capsys.readouterr().out


def test_step_is_printed_with_problems_answers_verdicts_and_rewards(run, capsys):
    text = show(capsys, run, "--step", "1")
    for fact in (
        "T0 against S0  solved 0.50, predicted 0.60: T0 wins", "T1 against S1  nothing to solve",
        "T0  code_o  1-0  asks for the output  solved 0.50",
        "reward +0.50", "return x * 2", "f(3) → 6", "f(2) → 4  hidden", "message  doubles",
        "AST depth 5, cyclomatic 1, lines of code 2, variables 1",
        "think</think> <answer>6</answer>", "✗ S0  reward -1.00  format", "✓ S0  ×2  reward +1.00",
        "void: the gold value did not reproduce",
        "? S1", "4 of 4 valid problems shown", "2 proposals rejected: format 1, out_of_resources 1", "while True",
    ):  # fmt: skip
        assert fact in text


def test_a_step_of_two_domains_is_printed_in_their_own_words(tmp_path, make_mixed_record, capsys):
    folder = tmp_path / "mixed"
    with new_run(folder, replace(Config(), steps=1, domains=("python", "sql")), {}):
        write_step(folder, make_mixed_record(1))
    text = show(capsys, str(folder), "--step", "1")
    for fact in (
        "T0  sql_o  1-1  asks for the output", "SELECT a * 2 FROM t", "t(a)\n3\n4\n→\n6\n8\n", "joins 1, nesting 2, clauses 3, columns 4",
        "f(3) → 6", "AST depth 5, cyclomatic 1, lines of code 2, variables 1",
    ):  # fmt: skip
        assert fact in text, fact
    words = " ".join(text.split())
    assert "T0 wins (python 0.25 of 2 problems, sql 1.00 of 1 problem)" in words
    assert "no game (python 0 problems, sql 0 problems)" in words
    assert "1-1" in show(capsys, str(folder), "--step", "1", "--task", "sql_o")


def test_selection_by_teacher_student_task_and_limit(run, capsys):
    text = show(capsys, run, "--step", "1", "--teacher", "T1")
    assert "1-3" in text and "1-0" not in text and "T0" not in text
    text = show(capsys, run, "--step", "1", "--student", "S0", "--task", "code_f")
    assert "1-2" in text and "1-0" not in text and "S1" not in text and "rejected" not in text
    text = show(capsys, run, "--step", "1", "--limit", "1")
    assert "1 of 4 valid problems" in text and "1-1" not in text and "while True" not in text
    assert "4 of 4" in show(capsys, run, "--step", "1", "--limit", "0")


def test_attempts_at_problems_from_the_buffer_are_printed_after_those_of_the_step(tmp_path, make_record, capsys, monkeypatch):
    record, folder = make_record(3), tmp_path / "run"
    old = record.attempts[-1]
    older = old._replace(student="S0", problem=replace(old.problem, id="1-older", author="T1", step=1))
    added = {name: (*getattr(record, name), getattr(record, name)[-1]) for name in ("student_rewards", "student_advantages", "trained")}
    with new_run(folder, replace(Config(), steps=3), {}):
        write_step(folder, make_record(3, attempts=(*record.attempts, older), **added))
    text = show(capsys, str(folder), "--step", "3")
    past = text.partition("4 of 4 valid problems shown")[2].partition("proposals rejected")[0]
    assert "seed  code_i  0-old  asks for the input  from the buffer, born in step 0" in past and "✓ S1  reward +1.00" in past
    assert "T1  code_i  1-older  asks for the input  from the buffer, born in step 1" in past and "✓ S0  reward +1.00" in past
    assert "2 of 2 problems from the buffer shown" in past
    with monkeypatch.context() as narrow:
        narrow.setenv("COLUMNS", "40")  # nothing is cut
        assert "from the buffer, born in step 1" in " ".join(show(capsys, str(folder), "--step", "3").split())
    for selection in (["--student", "S0"], ["--teacher", "T1"]):
        text = show(capsys, str(folder), "--step", "3", *selection)
        assert "1-older" in text and "0-old" not in text and "1 of 1 problem from the buffer shown" in text
    text = show(capsys, str(folder), "--step", "3", "--limit", "1")
    assert "1 of 2 problems from the buffer shown" in text and "1-older" not in text
    assert "from the buffer" not in show(capsys, str(folder), "--step", "3", "--task", "code_o")


def test_model_text_reaches_the_terminal_as_text(run, capsys):
    text = show(capsys, run, "--step", "2")
    assert "[red]not markup[/red] \\x1b[2Jwipe" in text and "\x1b" not in text
    assert printable("a\tb\nc\r\x07\u202e\ue000é") == "a\tb\nc\\r\\x07\\u202e\\ue000é"


def test_without_a_step_the_summary_is_shown(run, capsys):
    assert "2 of 2 steps" in " ".join(show(capsys, run).split())


def test_what_the_terminal_has_no_letters_for_is_escaped(run):
    command = [sys.executable, "-m", "populora.cli.main", "show", run, "--step", "1"]
    done = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"") and b"\\u2192" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--step", "9"], "no record of step 9: it holds steps 1 to 2"),
        (["--step", "1", "--teacher", "T7"], "--teacher is 'T7': expected one of T0, T1"),
        (["--step", "1", "--student", "T0"], "--student is 'T0': expected one of S0, S1"),
        (["--step", "1", "--task", "code_x"], "expected one of code_i, code_o, code_f"),
        (["--step", "1", "--limit", "-1"], "--limit is -1"),
        (["--teacher", "T0"], "--teacher selects from one step: expected --step N"),
    ],
)
def test_bad_selection_is_one_message(run, assert_refused, arguments, message):
    assert_refused(["show", run, *arguments], message)


def test_export_takes_the_adapter_of_an_earlier_step(run, tmp_path, capsys, assert_refused):
    for step in (1, 2):
        adapter = Adapter({"q_proj": (torch.full((2, 5), float(step)), torch.ones(3, 2))}, 2, 4.0)
        write = adapters_only({"S1": adapter}, base_name(BaseConfig()), ("q_proj",))
        save_checkpoint(Path(run), Checkpoint(step, {}, {"members": [{"id": "S1", "role": "student"}]}), 2, write)
    assert main(["export", run, "--member", "S1", "--step", "1", "-o", str(tmp_path / "early")]) == 0
    assert load_adapter(tmp_path / "early").modules["q_proj"][0].max() == 1 and "at step 1" in capsys.readouterr().out
    assert_refused(["export", run, "--member", "S1", "--step", "7", "-o", "late"], "has no checkpoint of step 7, but of 1, 2")


def test_export_of_an_adapter_of_a_base_of_the_hub_names_no_folder(run, tmp_path, capsys):
    write = adapters_only({"S1": Adapter({"q_proj": (torch.ones(2, 5), torch.ones(3, 2))}, 2, 4.0)}, "some/base", ("q_proj",))
    save_checkpoint(Path(run), Checkpoint(2, {}, {"members": [{"id": "S1", "role": "student"}]}), 1, write)
    assert main(["export", run, "--member", "S1", "-o", str(tmp_path / "s1")]) == 0
    assert "another machine" not in capsys.readouterr().out


def test_export_copies_the_adapter_and_overwrites_nothing(run, tmp_path, capsys, assert_refused):
    adapter = Adapter({"q_proj": (torch.ones(2, 5), torch.ones(3, 2))}, 2, 4.0)
    write = adapters_only({"S1": adapter}, base_name(BaseConfig()), ("q_proj",))
    save_checkpoint(Path(run), Checkpoint(2, {}, {"members": [{"id": "S1", "role": "student"}]}), 1, write)
    out = tmp_path / "deep" / "s1"
    assert main(["export", run, "--member", "S1", "-o", str(out)]) == 0
    printed = capsys.readouterr().out
    assert load_adapter(out).fingerprint() == adapter.fingerprint() and "S1" in printed
    assert f"On another machine it needs a copy of its base, the folder {base_folder(BaseConfig())}\n" in printed
    assert Path(json.loads((out / "adapter_config.json").read_text())["base_model_name_or_path"]) == base_folder(BaseConfig())
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {
        path.name: path.read_bytes() for path in (Path(run) / "adapters" / "S1").iterdir()
    }
    assert_refused(["export", run, "--member", "S1", "-o", str(out)], "exists already")
    for member_id in ("S9", "../adapters/S1"):
        assert_refused(["export", run, "--member", member_id, "-o", "other"], f"no member '{member_id}': expected one of S1")
