"""Whole runs that are stopped, killed or damaged: they go on to the same bytes, or say why not and lose nothing."""

import errno
import json
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from forked import forked
from small_run import SMALL, Silent, contents

import populora
from populora.core.config import BaseConfig, EvaluationConfig, EvolutionConfig, LearnerConfig, LoraConfig, PopulationConfig
from populora.core.config_file import to_toml
from populora.core.errors import ConfigError, RunDirectoryError
from populora.core.files import digest, json_bytes
from populora.core.invocation import command
from populora.core.rng import stream
from populora.domains.registry import load_domain
from populora.engine.model.loading import base_folder
from populora.runs.checkpoint import load_checkpoint
from populora.runs.directory import read_config
from populora.runs.metrics_log import TIMINGS, read_log
from populora.tasks.coverage import ranges_of
from populora.training.loop import resume, train

BASELINE = replace(SMALL, population=PopulationConfig(single_agent=True), checkpoint_every=2)


OTHERWISE = replace(  # what the other arms leave at its default
    SMALL, checkpoint_every=2, lora=LoraConfig(rank=4, alpha=8.0, ranks=(2, 2, 2, 4, 4, 4)), base=BaseConfig(dtype="bfloat16"),
    population=PopulationConfig(teachers=3, students=3), evolution=EvolutionConfig(every=2, operators=("x1", "x2", "x3", "x4")),
    learner=LearnerConfig(learning_rate=1e-3, old_logprobs="recomputed", activation_checkpointing="layer"),
    selfplay=replace(SMALL.selfplay, samples_per_prompt=2, rho_samples=2, max_response_tokens=32), evaluation=EvaluationConfig(every=0),
)  # fmt: skip


@pytest.mark.slow
def test_a_stopped_run_goes_on_to_the_same_bytes(undisturbed, tmp_path):
    asked = iter([False, True])
    summary = train(SMALL, tmp_path / "run", Silent(), stop=lambda: next(asked, True))
    assert (summary.stopped, summary.step) == (True, 1)
    resume(tmp_path / "run", Silent())
    assert contents(tmp_path / "run") == contents(undisturbed)


@pytest.mark.slow
def test_a_stop_between_two_checkpoints_leaves_one_of_its_own(tmp_path):
    train(replace(BASELINE, checkpoint_every=3), tmp_path / "run", Silent(), stop=iter([False, True]).__next__)
    checkpoint = load_checkpoint(tmp_path / "run")
    assert checkpoint and checkpoint.step == 1


class Crash(Exception):
    pass


class Crashing(Silent):
    """A display at which the run dies after a step is logged for which no checkpoint is due."""

    def step(self, record, metrics):
        if record.step == 3:
            raise Crash


@pytest.mark.slow
@pytest.mark.parametrize("config", [BASELINE, pytest.param(OTHERWISE, marks=pytest.mark.thorough)], ids=["baseline", "bfloat16"])
def test_a_run_that_died_goes_on_to_the_same_bytes_in_every_arm(config, tmp_path):
    train(config, tmp_path / "undisturbed", Silent())
    with pytest.raises(Crash):
        train(config, tmp_path / "run", Crashing())
    assert len(read_log(tmp_path / "run")) == 3
    resume(tmp_path / "run", Silent())
    assert contents(tmp_path / "run") == contents(tmp_path / "undisturbed")


@pytest.mark.slow
def test_a_disk_that_fills_up_stops_the_run_and_loses_nothing(undisturbed, tmp_path, monkeypatch):
    left = iter(range(25))

    def fill(descriptor):
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("populora.core.files.os.fsync", fill)
        with pytest.raises(RunDirectoryError, match="free some space"):
            train(SMALL, tmp_path / "run", Silent())
    resume(tmp_path / "run", Silent())
    assert contents(tmp_path / "run") == contents(undisturbed)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_named_and_after_its_removal_the_older_one_gives_the_same_bytes(undisturbed, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    newest = max((folder / "checkpoints").iterdir())
    (newest / "state.json").write_bytes(b"{}")
    with pytest.raises(RunDirectoryError, match=newest.name):
        resume(folder, Silent())
    shutil.rmtree(newest)
    resume(folder, Silent())
    assert contents(folder) == contents(undisturbed)


def test_what_cannot_be_restored_leaves_the_run_as_it_was(undisturbed, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    shutil.rmtree(max((folder / "checkpoints").iterdir()))  # the log goes beyond what is left
    before = contents(folder)
    ranges = ranges_of(load_domain("python"))
    monkeypatch.setattr("populora.tasks.coverage.ranges_of", lambda domain: ranges + 1.0)
    with pytest.raises(RunDirectoryError, match="tessellation"):
        resume(folder, Silent())
    assert contents(folder) == before


class Remarks(Silent):
    def __init__(self):
        self.texts: list[str] = []

    def remark(self, text):
        self.texts.append(text)


def test_a_resume_of_a_finished_run_says_how_it_trains_longer(undisturbed, tmp_path):
    shutil.copytree(undisturbed, tmp_path / "run")
    resume(tmp_path / "run", display := Remarks())
    longer = command("resume", tmp_path / "run", "--steps", 2 * SMALL.steps)
    assert display.texts == [f"all {SMALL.steps} steps are done; `{longer}` trains longer"]
    assert contents(tmp_path / "run") == contents(undisturbed)


LONG = replace(
    SMALL, evolution=EvolutionConfig(every=3), evaluation=EvaluationConfig(every=0), learner=replace(SMALL.learner, decay_steps=SMALL.steps)
)  # fmt: skip


@pytest.fixture(scope="module")
def long_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "long"
    train(LONG, folder, Silent())
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [pytest.param(False, marks=pytest.mark.thorough), True], ids=["finished", "stopped"])
def test_a_lengthened_run_is_as_one_that_began_with_as_many_steps(long_run, stopped, tmp_path):
    train(replace(LONG, steps=2), tmp_path / "run", Silent(), stop=iter([False, stopped, stopped]).__next__)
    resume(tmp_path / "run", display := Remarks(), steps=LONG.steps)
    lengthened, began_longer = contents(tmp_path / "run"), contents(long_run)
    assert {name for name in began_longer if lengthened.get(name) != began_longer[name]} == {"run.json"} and not display.texts
    assert lengthened.keys() == began_longer.keys()
    with pytest.raises(ConfigError, match=r"learner\.decay_steps is 4: expected 0 or at least steps, 5"):
        resume(tmp_path / "run", Silent(), steps=5)


def test_a_run_that_began_before_a_setting_existed_can_be_lengthened_more_than_once(undisturbed, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    settings, facts = (json.loads((folder / name).read_text()) for name in ("config.json", "run.json"))
    del settings["learner"]["decay_steps"]
    (folder / "config.json").write_bytes(json_bytes(settings))
    (folder / "run.json").write_bytes(json_bytes({**facts, "config_sha256": digest(json_bytes(settings))}))
    for steps in (6, 8):
        resume(folder, Silent(), lambda: True, steps=steps)
        assert read_config(folder) == replace(SMALL, steps=steps)


def test_versions_that_changed_since_a_run_began_are_named(undisturbed, tmp_path):
    shutil.copytree(undisturbed, tmp_path / "run")
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    facts["versions"]["populora"] = "0.1.0"
    (tmp_path / "run" / "run.json").write_text(json.dumps(facts))
    resume(tmp_path / "run", display := Remarks(), lambda: True)
    assert f"populora 0.1.0, now {populora.__version__}: the results may differ from those of an undisturbed run" in display.texts


def test_a_run_whose_checkpoints_are_gone_stays_as_it_is(undisturbed, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder, symlinks=True)
    shutil.rmtree(folder / "checkpoints")
    before = contents(folder)
    with pytest.raises(RunDirectoryError, match="reaches 4 steps beyond the newest checkpoint"):
        resume(folder, Silent())
    assert contents(folder) == before


def test_a_lengthened_run_says_which_children_it_lacks_and_never_becomes_shorter(undisturbed, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    resume(folder, display := Remarks(), lambda: True, steps=6)
    assert display.texts == ["no children were bred after step 4, as it was the last one: a run that began longer has them"]
    resume(folder, Silent(), lambda: True)
    lengthened = contents(folder)
    assert read_config(folder) == replace(SMALL, steps=6)
    with pytest.raises(ConfigError, match=r"steps is 5: expected at least the 6 of the run"):
        resume(folder, Silent(), steps=5)
    assert contents(folder) == lengthened
    (folder / "config.json").write_text((folder / "config.json").read_text().replace('"seed": 5', '"seed": 6'))
    with pytest.raises(RunDirectoryError, match="not the configuration this run began with"):
        resume(folder, Silent(), steps=8)


def test_a_resume_on_another_base_is_refused(undisturbed, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    facts = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**facts, "base_sha256": "0" * 64}))
    before = contents(folder)
    with pytest.raises(RunDirectoryError, match="base_sha256"):
        resume(folder, Silent())
    assert contents(folder) == before


@pytest.mark.slow
def test_a_base_in_a_relative_folder_is_found_from_another_folder(tmp_path, monkeypatch):
    shutil.copytree(base_folder(BaseConfig()), tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    train(replace(SMALL, base=BaseConfig(path="mine")), tmp_path / "run", Silent(), stop=lambda: True)
    monkeypatch.chdir("/")
    resume(tmp_path / "run", Silent(), stop=lambda: True)
    assert read_config(tmp_path / "run").base.path == str(tmp_path / "mine")


def test_a_run_without_a_checkpoint_begins_again_with_the_same_seeds_or_not_at_all(undisturbed, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder, ignore=shutil.ignore_patterns("checkpoints", "adapters", "steps", "*.jsonl"))
    facts = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**facts, "seeds_sha256": "0" * 64}))
    with pytest.raises(RunDirectoryError, match="expected seeds_sha256 '0"):
        resume(folder, Silent())
    shutil.copy(undisturbed / "run.json", folder)
    resume(folder, Silent(), stop=lambda: True)
    checkpoint = load_checkpoint(folder)
    assert checkpoint and checkpoint.step == 0 and json.loads((folder / "run.json").read_text()) == facts


@pytest.mark.parametrize("name", ["adapters/S1/adapter_model.safetensors", "adapters/S1/adapter_config.json", "optimiser/S1.safetensors"])
def test_a_damaged_member_is_found_and_the_older_checkpoint_named(undisturbed, tmp_path, name):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder, symlinks=True)
    newest = sorted((folder / "checkpoints").iterdir())[-1]
    (newest / name).write_bytes((newest / name).read_bytes()[:-1] + b"x")
    with pytest.raises(RunDirectoryError, match=rf"S1.*' is damaged.*Or remove '.*step_{SMALL.steps:05d}'.*older checkpoint of step"):
        resume(folder, Silent())


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bytes(undisturbed, tmp_path):
    folder, chance = tmp_path / "run", stream(0, "kills")
    pace = sum(line["seconds/step"] for line in read_log(undisturbed, TIMINGS)) / SMALL.steps
    (tmp_path / "small.toml").write_text(to_toml(SMALL))
    kills = 0
    for _ in range(3):
        started = len(read_log(folder)) if folder.exists() else 0
        words = ("resume", folder) if (folder / "config.json").exists() else ("train", tmp_path / "small.toml", "--out", folder)
        with forked(*words) as process:
            while process.is_alive() and not _moved(folder, started):
                time.sleep(0.02)
            time.sleep(pace * chance.uniform(0.0, 1.0))  # into any phase of the next step
        assert process.exitcode in (0, -signal.SIGKILL)
        kills += process.exitcode != 0
    assert kills >= 1
    resume(folder, Silent())
    assert contents(folder) == contents(undisturbed)


def _moved(folder: Path, started: int) -> bool:
    """Whether the process has logged a step of its own, so that every kill costs something."""
    return (folder / "metrics.jsonl").exists() and len(read_log(folder)) > started
