"""The command line: bad input is one message, exit code 2 and nothing written; Ctrl-C finishes the step."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from populora.cli.arguments import parse_settings
from populora.cli.main import COMMANDS, main
from populora.cli.train import Train
from populora.core.config import ClusterConfig, Config, SelfplayConfig
from populora.core.errors import ConfigError
from populora.runs.directory import new_run
from populora.runs.summary import Summary


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a function in the place of `populora.training.loop.train` and ``resume``."""

    def install(train: Callable[..., Summary]) -> None:
        stand_in = SimpleNamespace(train=train, resume=lambda folder, display, stop, *_: train(None, folder, display, stop))
        monkeypatch.setitem(sys.modules, "populora.training.loop", stand_in)

    return install


def summary(folder: Path, step: int, stopped: bool) -> Summary:
    return Summary(folder, step, 30, stopped, 1.0, {}, {}, {}, 0)


FILES = {
    "tiny.toml": "seed = 1\n", "broken.toml": "seed = \n", "unknown.toml": "[lora]\nrnk = 4\n", "typed.toml": "[lora]\nrank = '4'\n",
    "full/thesis.tex": "precious",
}  # fmt: skip
BAD = {
    "train --lora.rnk 4": "unknown setting 'lora.rnk'. Did you mean 'lora.rank'",
    "train --evolution-every 5": "unknown setting 'evolution_every'. Did you mean 'evolution.every'",
    "train --lora.dropout 0.1": "unknown setting 'lora.dropout': with dropout the learner would train another policy",
    "train --sed=4": "unknown setting 'sed'. Did you mean 'seed'",
    "train --lora.rank abc": "--lora.rank: expected an integer, got 'abc'",
    "train --learner.learning-rate fast": "expected a number, got 'fast'",
    "train --seed": "Missing value for argument '--seed'",
    "train broken.toml": "not valid TOML",
    "train unknown.toml": "unknown setting 'lora.rnk'. Did you mean 'lora.rank'",
    "train typed.toml": "setting 'lora.rank': expected int, got '4' (str)",
    "train tiny.toml other.toml": "other.toml",
    "train --population.teachers 0": "at least one teacher",
    "train --evolution.cull-fraction 1.5": "cull_fraction is 1.5",
    "train --out tiny.toml": "is a file",
    "train --out full": "not empty",
    "resume nowhere": "'nowhere' is not a run directory",
    "resume": "expected a run directory, and 'runs/' has none",
    "show": "expected a run directory, and 'runs/' has none",
    "report": "expected a run directory, and 'runs/' has none",
    "watch": "expected a run directory, and 'runs/' has none",
    "watch nowhere": "'nowhere' is not a run directory",
    "show nowhere --step 3": "'nowhere' is not a run directory",
    "export nowhere --member S0 -o out": "'nowhere' is not a run directory",
    "replay": "PATH",
    "tarin": "unknown command 'tarin': expected one of train",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_message_and_writes_nothing(line, tmp_path, assert_refused):
    (tmp_path / "full").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    assert_refused(line.split(), BAD[line])


def test_flags_beat_the_file_and_the_file_beats_defaults():
    Path("x.toml").write_text("seed = 5\nsteps = 7\n[lora]\nrank = 4\ntargets = ['q_proj']\n")
    chosen = parse_settings(Train, ["--seed", "9", "x.toml", "--evolution.operators", "m1", "x2", "--learner.betas", "0.8", "0.9"], "train")
    settings = chosen.settings
    assert (settings.seed, settings.steps, settings.lora.rank, settings.lora.targets) == (9, 7, 4, ("q_proj",))
    assert settings.evolution.operators == ("m1", "x2") and settings.learner.betas == (0.8, 0.9)
    assert settings.selfplay == Config().selfplay


def test_switches_can_be_turned_off_again():
    Path("x.toml").write_text("[population]\nsingle_agent = true\n")
    assert parse_settings(Train, ["x.toml"], "train").settings.population.single_agent
    assert not parse_settings(Train, ["x.toml", "--population.no-single-agent"], "train").settings.population.single_agent
    with pytest.raises(ConfigError, match=r"population\.no-teachers"):
        parse_settings(Train, ["--population.no-teachers"], "train")


def test_run_directory_is_named_after_the_file_and_numbered(training):
    folders: list[Path] = []

    def train(config: Config, folder: Path, display: object, stop: object) -> Summary:
        folders.append(folder)
        assert folder.is_dir(), "a run that starts meanwhile must not take it"
        (folder / "config.json").write_text("{}")
        return summary(folder, 30, stopped=False)

    training(train)
    Path("tiny.toml").write_text("")
    assert main(["train", "tiny.toml"]) == main(["train", "tiny.toml"]) == main(["train"]) == 0
    assert folders == [Path("runs/tiny"), Path("runs/tiny-2"), Path("runs/tiny-3")]


def test_a_run_that_fails_before_it_writes_leaves_no_folder(training):
    def train(config: Config, folder: Path, display: object, stop: object) -> Summary:
        raise ConfigError("no")

    training(train)
    assert main(["train"]) == 2 and not list(Path("runs").iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_interrupt_finishes_the_step_and_says_how_to_resume(training, capsys, number):
    def train(config: Config, folder: Path, display: object, stop: Callable[[], bool]) -> Summary:
        assert not stop()
        os.kill(os.getpid(), number)
        assert stop()
        return summary(folder, 12, stopped=True)

    training(train)
    before = signal.getsignal(number)
    assert main(["train", "--out", "mine"]) == 130
    assert "stopped after step 12 of 30; `populora resume mine` continues" in capsys.readouterr().err
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("begun", [True, False])
def test_second_interrupt_stops_at_once(training, capsys, begun):
    def train(config: Config | None, folder: Path, display: object, stop: object) -> Summary:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
        pytest.fail("the second Ctrl-C was ignored")

    training(train)
    if begun:
        with new_run(Path("mine"), Config(), {}):
            pass
    assert main(["resume", "mine"] if begun else ["train", "--out", "mine"]) == 130
    said = "`populora resume mine` continues from the last checkpoint" if begun else "nothing was written yet"
    assert f"stopped at once; {said}" in capsys.readouterr().err and Path("mine").exists() == begun


def test_a_resume_may_name_other_processes_and_more_steps_but_none_that_the_run_cannot_have(monkeypatch, assert_refused):
    clusters: list[ClusterConfig] = []
    numbers: list[int | None] = []

    def resume(folder: Path, display: object, stop: object, cluster: ClusterConfig, steps: int | None) -> Summary:
        clusters.append(cluster)
        numbers.append(steps)
        return summary(folder, 30, stopped=False)

    monkeypatch.setitem(sys.modules, "populora.training.loop", SimpleNamespace(resume=resume))
    off = replace(Config(), selfplay=SelfplayConfig(overlap="off"), cluster=ClusterConfig(learners=2))
    for name, config in (("apart", off), ("alone", Config())):
        with new_run(Path(name), config, {}):
            pass
    assert main(["resume", "apart", "--cluster.engines", "3"]) == 0 and main(["resume", "apart", "--cluster.learners", "0"]) == 0
    assert main(["resume", "apart", "--steps", "300"]) == 0
    assert clusters == [ClusterConfig(learners=2, engines=3), ClusterConfig(), ClusterConfig(learners=2)] and numbers == [None, None, 300]
    assert_refused(["resume", "apart", "--steps", "100"], "steps is 100: expected at least the 200 of the run")
    assert_refused(["resume", "alone", "--cluster.learners", "2"], 'began with "reproducible" resumes without cluster.learners')


PROBE = """
import sys
from populora.cli.main import main
try:
    code = main(sys.argv[1].split())
except SystemExit as end:
    code = end.code
assert not code and not set(sys.argv[2].split()) & set(sys.modules)
"""
LIGHT = {
    "--help": "torch numpy pyarrow tyro rich", "train --help": "torch", "show --help": "torch", "breed --help": "torch",
    "plan paper_4t4s": "torch transformers",
}  # fmt: skip


@pytest.mark.parametrize("line", LIGHT)
def test_commands_that_compute_nothing_load_nothing_heavy(line):
    done = subprocess.run([sys.executable, "-c", PROBE, line, LIGHT[line]], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: populora") or line.startswith("plan")
    assert line != "--help" or all(f"  {name} " in done.stdout for name in COMMANDS)


def test_a_reader_that_goes_ends_the_command_quietly():
    reader, writer = os.pipe()
    os.close(reader)
    command = subprocess.run(
        [sys.executable, "-m", "populora.cli.main", "train", "--help"], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (command.returncode, command.stderr) == (141, b"")


def test_a_broken_pipe_within_populora_is_no_reader_that_went(monkeypatch, tmp_path):
    def fail(arguments):
        raise BrokenPipeError("of a process that died")

    monkeypatch.setattr("populora.cli.doctor.main", fail)
    with (tmp_path / "out").open("w") as stdout, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stdout)
        with pytest.raises(BrokenPipeError, match="of a process that died"):
            main(["doctor"])
