"""A tracker that fails costs no run, and what cannot be tracked is refused: without any tracker's library."""

from dataclasses import replace

import pytest
from small_run import SMALL, Silent
from tracked_steps import CONFIG, write_step

from populora.cli.dry_run import dry_run
from populora.core.config import EvaluationConfig
from populora.core.config_check import check
from populora.core.config_file import from_mapping
from populora.core.errors import ConfigError
from populora.runs import loggers
from populora.runs.metrics_log import read_log
from populora.training.loop import resume, train

WATCHED = replace(CONFIG, track=("wandb",))


class Recording:
    """A tracker without a library."""

    fails: tuple[str, ...] = ()
    closed = 0

    def __init__(self):
        self.steps: list[int] = []
        type(self).last = self

    def open(self, run, last):
        return self._unless("open", last)

    def log(self, step, values):
        self._unless(f"log {step}", None)
        self.steps.append(step)

    def close(self):
        self._unless("close", None)
        type(self).closed += 1

    def _unless(self, call, value):
        if call in self.fails:
            raise ConnectionError("network gone")
        return value


@pytest.mark.parametrize(("fails", "sent"), [("open", []), ("log 2", [1]), ("close", [1, 2, 3])])
def test_a_tracker_that_fails_is_told_of_once_and_left_out_until_the_next_opening(fails, sent, tmp_path, monkeypatch, capsys):
    broken, sound = type("Broken", (Recording,), {"fails": (fails,)}), type("Sound", (Recording,), {})
    monkeypatch.setattr(loggers, "LOGGERS", {"wandb": broken, "trackio": sound})
    config = replace(CONFIG, track=("wandb", "trackio"))
    with loggers.open_loggers(tmp_path, config) as follow:
        for step in (1, 2, 3):
            write_step(tmp_path, step)
            follow()
    assert (broken.last.steps, sound.last.steps) == (sent, [1, 2, 3]) and sound.closed == 1
    assert capsys.readouterr().err.count("populora: wandb failed and is left out from now on (ConnectionError: network gone)") == 1
    broken.fails = ()
    with loggers.open_loggers(tmp_path, config):
        pass
    assert (sent + broken.last.steps, sound.last.steps) == ([1, 2, 3], []) and not capsys.readouterr().err


def test_a_tracker_that_fails_ends_no_run_whose_errors_nobody_reads(tmp_path, monkeypatch):
    def refuse(text):
        raise BrokenPipeError

    monkeypatch.setattr(loggers, "LOGGERS", {"wandb": type("Broken", (Recording,), {"fails": ("log 1",)})})
    with loggers.open_loggers(tmp_path, WATCHED) as follow, monkeypatch.context() as patched:
        patched.setattr(loggers.sys.stderr, "write", refuse)
        write_step(tmp_path, 1)
        follow()


class Crashing(Silent):
    """A display at which the run dies after a step that no checkpoint holds."""

    def step(self, record, metrics):
        if record.step == 3:
            raise ZeroDivisionError


@pytest.mark.slow
def test_a_tracker_gets_each_step_once_and_none_that_a_resume_takes_back(tmp_path, monkeypatch):
    monkeypatch.setattr(loggers, "LOGGERS", {"wandb": Recording})
    monkeypatch.setattr("populora.training.loop.check_loggers", lambda track: None)
    small = replace(SMALL.selfplay, seeds=8, max_response_tokens=48)
    config = replace(SMALL, track=("wandb",), checkpoint_every=2, selfplay=small, evaluation=EvaluationConfig(every=0))
    with pytest.raises(ZeroDivisionError):
        train(config, tmp_path / "run", Crashing())
    assert len(read_log(tmp_path / "run")) == 3 and Recording.last.steps == [1, 2]
    resume(tmp_path / "run", Silent())
    assert Recording.last.steps == [3, 4]


def test_an_interrupt_is_no_failure_of_a_tracker_and_closes_it(tmp_path, monkeypatch):
    monkeypatch.setattr(loggers, "LOGGERS", {"wandb": Recording})
    closed = Recording.closed
    with pytest.raises(KeyboardInterrupt), loggers.open_loggers(tmp_path, WATCHED):
        raise KeyboardInterrupt
    assert Recording.closed == closed + 1


def test_what_cannot_be_tracked_is_refused_before_anything_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(loggers, "versions", lambda packages: dict.fromkeys(packages, "not installed"))
    for begin in (lambda config: train(config, tmp_path / "run", Silent()), lambda config: dry_run(config, tmp_path / "run")):
        with pytest.raises(ConfigError, match=r"track has 'trackio', which is not installed. `.* 'trackio>=0.40'` installs"):
            begin(replace(SMALL, track=("trackio",)))
    assert not (tmp_path / "run").exists()


def test_a_tracker_is_named_once_and_must_exist():
    with pytest.raises(ConfigError, match="expected each of them once"):
        check(replace(CONFIG, track=("wandb", "wandb")))
    with pytest.raises(ConfigError, match=r"'track': expected one of 'tensorboard', 'trackio', 'wandb', got 'mlflow'"):
        from_mapping({"track": ["mlflow"]})
