"""Which runs are one arm, which arms are baselines, and what arms and runs are called."""

import json
from pathlib import Path
from typing import Any

import pytest
from report_runs import study_of

from populora.core.errors import ConfigError
from populora.report.arms import INK, PALETTE, arms_of


def changed(folder: Path, **settings: Any) -> Path:
    """The run with other settings, of tables such as ``selfplay`` those that are named."""
    config = json.loads((folder / "config.json").read_text())
    for name, value in settings.items():
        config[name] = {**config[name], **value} if isinstance(value, dict) else value
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def facts(*folders: Path, baselines: tuple[Path, ...] = ()) -> list[tuple[str, list[str], bool]]:
    return [(arm.label, [run.name for run in arm.runs], arm.baseline) for arm in arms_of(folders, baselines)]


def test_where_and_how_long_a_run_ran_makes_no_other_arm(runs, copied):
    parts = {"engine": {"backend": "vllm"}, "sandbox": {"workers": 8}, "base": {"device": "cuda"}, "learner": {"micro_batch_tokens": 64}}
    parts |= {"selfplay": {"overlap": "eager"}, "evolution": {"keep_parents": False}, "evaluation": {"every": 3}}
    other = changed(copied(to="other"), steps=400, threads=9, checkpoint_every=7, track=["wandb"], seed=3, **parts)
    assert facts(runs["pair"], other) == [("2T+2S", ["pair", "other"], False)]
    (arm,) = arms_of([runs["pair"], other])
    assert (arm.label, arm.seeds, arm.adapters, arm.single_agent) == ("2T+2S", [0, 3], 4, False)


def test_a_base_is_the_same_by_its_fingerprint_wherever_it_lies(copied):
    folders = [changed(copied(to=name), base={"path": path}) for name, path in (("a", "tiny"), ("b", "/there"), ("c", "tiny"))]
    for folder, digest in zip(folders, ("aa" * 32, "aa" * 32, "bb" * 32), strict=True):
        run_facts = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps({**run_facts, "base_sha256": digest}))
    assert facts(*folders) == [("2T+2S (base aaaaaaaaaaaa)", ["a", "b"], False), ("2T+2S (base bbbbbbbbbbbb)", ["c"], False)]


def test_a_setting_of_the_method_makes_another_arm_and_stands_in_the_label(runs, copied):
    other = changed(copied(to="other"), selfplay={"rho_samples": 9})
    assert facts(runs["pair"], other, runs["pair-1"]) == [
        ("2T+2S (selfplay.rho_samples 4)", ["pair", "pair-1"], False), ("2T+2S (selfplay.rho_samples 9)", ["other"], False),
    ]  # fmt: skip


def test_settings_that_a_single_agent_does_not_use_make_no_other_arm(runs, copied):
    other = changed(copied("agent", to="other"), population={"teachers": 7}, evolution={"every": 3}, league={"pfsp_floor": 0.5})
    ((_, names, _),) = facts(runs["agent"], other)
    assert names == ["agent", "other"]


def test_single_agents_are_baselines_beside_a_population_alone(runs):
    population, agents = [runs["pair"]], [runs["agent"], runs["agent-1"]]
    first, second = arms_of([*population, *agents])
    assert (first.label, first.baseline, first.colour, first.single_agent, first.adapters) == ("baseline (1 agent)", True, INK, True, 1)
    assert (second.label, second.baseline, second.colour) == ("2T+2S", False, PALETTE[0])
    (alone,) = arms_of(agents)
    assert not alone.baseline and alone.colour == PALETTE[0]


def test_a_run_that_is_named_as_baseline_makes_its_whole_arm_one_and_comes_first(runs, copied):
    other = changed(copied(to="other"), selfplay={"rho_samples": 9})
    arms = arms_of([other, runs["pair-1"]], [runs["pair"]])
    assert [(arm.baseline, arm.colour, [run.name for run in arm.runs]) for arm in arms] == [
        (True, INK, ["pair", "pair-1"]), (False, PALETTE[0], ["other"]),
    ]  # fmt: skip
    study = study_of(other, runs["pair-1"], baselines=(runs["pair"],))
    assert study.main is study.arms[1], "a baseline is the main arm only where there is no other"
    only = study_of(baselines=(runs["pair"],))
    assert only.main is only.arms[0]


@pytest.mark.parametrize("again", ["", "../pair"])
def test_a_run_given_twice_is_refused_however_it_is_written(runs, again):
    run = runs["pair"]
    for folders, baselines in (([run, run / again], []), ([run], [run / again])):
        with pytest.raises(ConfigError, match=r"expected each run once, got .*/pair more than once"):
            arms_of(folders, baselines)


def test_runs_in_folders_of_one_name_are_called_by_as_much_of_the_path_as_tells_them_apart(copied):
    folders = [copied(to=name) for name in ("x/a/run", "y/a/run", "b/run", "other")]
    (arm,) = arms_of(folders)
    assert [run.name for run in arm.runs] == ["x/a/run", "y/a/run", "b/run", "other"]


def test_the_figures_of_one_population_are_about_the_largest(runs, copied):
    larger = changed(copied(to="larger"), population={"students": 5})
    study = study_of(runs["pair"], runs["agent"], larger)
    assert study.main and study.main.label == "2T+5S" and [arm.label for arm in study.populations] == ["2T+2S", "2T+5S"]
