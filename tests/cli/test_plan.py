"""`populora plan` and `populora train --dry-run`: every shipped configuration passes, bad input is one message, no weights are read."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from populora.cli.main import main
from populora.cli.plan import plan_run
from populora.core.config import PopulationConfig
from populora.core.config_file import load_config
from populora.core.presets import FOLDER, preset_names
from populora.engine.planning.assumptions import Assumptions
from populora.engine.sampling.cpu_speed import measure_cpu

ROOT = Path(__file__).parents[2]
CONFIGS = [FOLDER / f"{name}.toml" for name in preset_names()]
PLANNED = [path for path in CONFIGS if path.stem.startswith(("paper", "one_gpu", "azr"))]
measured_once = cache(measure_cpu)


@pytest.fixture(autouse=True)
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("weights were read")

    monkeypatch.setattr("transformers.PreTrainedModel.from_pretrained", refuse)
    monkeypatch.setattr("populora.engine.sampling.cpu_speed.measure_cpu", measured_once)
    monkeypatch.setenv("COLUMNS", "160")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_preset_passes_a_dry_run_into_a_folder_of_its_name(path, tmp_path, capsys):
    assert main(["train", path.stem, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert f"into runs/{path.stem}," in out
    assert f"would run: {load_config(path).steps} steps into" in out and "Limit: " in out and "not checked: weights" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", PLANNED, ids=lambda path: path.stem)
def test_headers_say_what_the_plan_says(path):
    header, config = path.read_text().split("\nseed", maxsplit=1)[0], load_config(path)
    named = re.search(r"--gpu (\S+)`", header)
    plan = plan_run(config, named[1] if named else "h100-80gb")
    hours = [seconds * config.steps / 3600 for seconds in (plan.seconds.shortest, plan.seconds.longest)]
    assert plan.fits and ", not measured." in header
    assert f"; {plan.memory.total / 1e9:.0f} GB on each GPU.\n# Time: {hours[0]:.1f} to {hours[1]:.1f} h, planned by" in header


@pytest.mark.parametrize("path", [path for path in PLANNED if path.stem.startswith("paper")], ids=lambda path: path.stem)
def test_the_page_says_what_the_plan_says(path):
    page, config = (ROOT / "docs" / "plan.md").read_text(), load_config(path)
    usual, trained = (plan_run(config, assumed=Assumptions(valid=valid)).seconds for valid in (0.5, 0.125))
    hours = [f"{plan.shortest * 200 / 3600:.1f} to {plan.longest * 200 / 3600:.1f} h" for plan in (usual, trained)]
    steps = [f"{plan.shortest:.0f} to {plan.longest:.0f} s" for plan in (usual, trained)]
    assert f"| `{path.stem}` | {steps[0]} | {hours[0]} | {steps[1]}, {hours[1]} |" in page


def test_the_page_says_how_long_publishing_takes():
    configs = [load_config(path) for path in PLANNED if path.stem.startswith("paper")]
    plans = [plan_run(config, assumed=Assumptions(valid=valid)).seconds for config in configs for valid in (0.5, 0.125)]
    shares = [100 * plan.publish_share for plan in plans]
    assert f"Publishing takes {min(shares):.1f} to {max(shares):.1f} % of these steps" in (ROOT / "docs" / "plan.md").read_text()


def test_the_paper_s_arms_differ_in_their_population_alone():
    arms = [load_config(path) for path in PLANNED if path.stem.startswith("paper")]
    alone, *populations = sorted(arms, key=lambda arm: not arm.population.single_agent)
    alone = replace(alone, league=populations[0].league, evolution=populations[0].evolution)  # one agent has neither
    same = {str(replace(arm, population=PopulationConfig())) for arm in (alone, *populations)}
    assert len(same) == 1 and len({str(arm.population) for arm in arms}) == len(arms) == 5


def test_a_plan_shows_parts_limit_and_assumptions(capsys):
    assert main(["plan", str(FOLDER / "paper_4t4s.toml"), "--assume.valid", "0.125"]) == 0
    out = capsys.readouterr().out
    assert "4 teachers + 4 students on Qwen/Qwen2.5-Coder-7B, 8 x h100-80gb: 8 engines, 8 learners, 8 verifiers" in out
    assert "keys and values" in out and "of 80.0: fits" in out
    assert "Limit: training" in out and "--assume.valid" in out and "0.125" in out and "4,608" in out
    adapter = 4 * 32 * 28 * (3584 * 2 + 3584 + 512 + 3584 + 512 + 3584 * 2)  # bytes in fp32: A and B of q, k, v and o in 28 layers
    kept, size = 11, 3 * 8 * adapter / 1e9  # of every 20th step, and of step 199
    assert f"Its checkpoints take {kept * size:.2g} GB of disk, {kept} of {size:.2g} GB." in out
    every = ("--steps", "25", "--checkpoint-every", "10", "--keep-checkpoints-every", "20")
    assert main(["plan", str(FOLDER / "paper_4t4s.toml"), *every]) == 0 and " GB of disk, 2 of " in capsys.readouterr().out


def test_a_plan_that_does_not_fit_says_what_to_change_and_fails(capsys):
    assert main(["plan", str(FOLDER / "paper_4t4s.toml"), "--learner.activation-checkpointing", "none"]) == 1
    out = capsys.readouterr().out
    assert "does not fit" in out and 'To make it fit: set learner.activation_checkpointing = "layer".' in out


def test_several_gpus_without_cluster_settings_are_planned_with_some(capsys):
    config = str(FOLDER / "one_gpu_1.5b.toml")
    assert main(["plan", config, "--gpus", "8"]) == 0
    out = capsys.readouterr().out
    assert 'one process. Planned with cluster.learners = 8, cluster.engines = 8, selfplay.overlap = "eager":' in out
    assert "8 x h100-80gb: 8 engines, 8 learners, 1 verifier" in out and "idle" not in out


def test_the_name_of_the_gpus_may_stand_beside_their_number(capsys):
    assert main(["plan", "paper_4t4s", "--gpus", "8xH200"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "8 x h200-141gb: 8 engines" in out and "All else is calculated" in out
    assert main(["plan", "tiny", "--gpu", "CPU"]) == 0


def test_idle_gpus_are_reported(capsys):
    assert main(["plan", str(FOLDER / "paper_4t4s.toml"), "--gpus", "8", "--nodes", "2"]) == 0
    assert "8 of 16 GPUs stay idle: cluster.engines x engine.tensor_parallel is 8" in capsys.readouterr().out
    assert main(["train", str(FOLDER / "one_gpu_7b.toml"), "--dry-run", "--gpus", "8"]) == 0
    out = capsys.readouterr().out
    assert "1 x h100-80gb: one process that samples and learns" in out
    settings = 'cluster.learners = 8, cluster.engines = 8, selfplay.overlap = "eager"'
    assert f"7 of 8 GPUs stay idle: a run without cluster settings is one process; {settings} would use them" in out


def test_a_cluster_on_processors_is_planned_by_its_processes(capsys):
    cluster = ["--cluster.learners", "3", "--cluster.engines", "2", "--selfplay.overlap", "off"]
    assert main(["plan", str(FOLDER / "tiny.toml"), *cluster]) == 0
    out = capsys.readouterr().out
    assert "measured now: fp32 products of 1024 x 1024" in out
    assert "cores of its own for each process: 2 engines, 3 learners, 1 verifier" in out and "memory of an engine and a learner" in out


BAD = {
    "plan --gpu h10o": "h200-141gb, a100-80gb, a100-40gb, l40s-48gb, rtx4090-24gb.",
    "plan --gpu a100": "ambiguous GPU 'a100': expected cpu or one of a100-80gb, a100-40gb.",
    "plan --gpus H100": "--gpus: expected a number of GPUs, such as 8 or 8xH100, got 'H100'",
    "plan --gpus 8x": "--gpus: expected a number of GPUs, such as 8 or 8xH100, got '8x'",
    "plan --gpus 0xH100": "--gpus: expected a number of GPUs, such as 8 or 8xH100, got '0xH100'",
    "train paper_4t4s.toml --dry-run --gpus 8xrtx4090-24gb": "on each GPU, a rtx4090-24gb has 24.0: take another GPU",
    "plan --gpus 8xH100 --gpu h200": "--gpu h200 and --gpus 8xH100 both name the GPU",
    "plan paper_4t4s.toml --gpus 4": "expected 8 GPUs, those of an engine on one node (8 engines x engine.tensor_parallel 1), got --gpus 4",
    "plan paper_4t4s.toml --nodes 2": "--nodes 2: expected --gpus with it",
    "plan tiny.toml --cluster.learners 2 --selfplay.overlap off --gpu h100-80gb": "is 1 GPUs, cluster.learners x cluster.shards is 2",
    "plan paper_4t4s.toml --assume.publish-gb-per-second 0": "--assume.publish-gb-per-second: expected a number above 0, got 0",
    "plan --gpus 2": "a plan for the processor is for this machine alone",
    "plan --asume.valid 1": "unknown setting 'asume.valid'. Did you mean 'assume.valid'",
    "train paper_4t4s.toml --dry-run --gpus 1": "got --gpus 1 --nodes 1: give more, or lower cluster.engines and cluster.learners",
    "train --gpu h100-80gb": "expected --dry-run with them",
    "train --dry-run --selfplay.max-response-tokens 1000": "exceed the base's context of 512 tokens",
    "train paper_4t4s.toml --dry-run --lora.rank 1": "operator 'x3' needs lora.rank 2 or more",
    "train paper_4t4s.toml --dry-run --learner.activation-checkpointing none": "on each GPU, a h100-80gb has 80.0: set",
    "train paper_4t4s.toml --dry-run --gpu rtx4090-24gb": "on each GPU, a rtx4090-24gb has 24.0: take another GPU: it fits h100-80gb",
    "train paper_4t4s.toml --dry-run --evaluation.every 5": "has no held-out suite",
    "train paper_4t4s.toml --dry-run --selfplay.max-response-tokens 16000": "smaller than one row of selfplay's limits",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_message(line, assert_refused):
    assert_refused([str(FOLDER / word) if word.endswith(".toml") else word for word in line.split()], BAD[line])
