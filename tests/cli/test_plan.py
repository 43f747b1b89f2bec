"""`populora plan` and `populora train --dry-run`: every shipped configuration passes, bad input is one message, no weights are read."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from populora.cli import main
from populora.commands.plan import planned
from populora.config import EvolutionConfig, PopulationConfig
from populora.config_file import load_config
from populora.planning.assumptions import Assumptions

FOLDER = Path(__file__).parents[2] / "configs"
CONFIGS = [path for path in sorted(FOLDER.glob("*.toml")) if not path.stem.startswith("retention")]
PLANNED = [path for path in CONFIGS if path.stem.startswith(("paper", "one_gpu"))]


@pytest.fixture(autouse=True)
def no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("weights were read")

    monkeypatch.setattr("transformers.PreTrainedModel.from_pretrained", refuse)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_configuration_passes_a_dry_run(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["train", str(path), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert f"would run: {load_config(path).steps} steps of" in out and "not checked: weights" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", PLANNED, ids=lambda path: path.stem)
def test_headers_say_what_the_plan_says(path: Path):
    header, config = path.read_text().split("\nseed", maxsplit=1)[0], load_config(path)
    named = re.search(r"--gpu (\S+)`", header)
    plan = planned(config, named[1] if named else "h100-80gb")
    hours = [seconds * config.steps / 3600 for seconds in (plan.seconds.lean, plan.seconds.longest)]
    assert plan.fits and "not measured: " in header
    assert f"{plan.memory.total / 1e9:.0f} GB on each GPU, {hours[0]:.1f} to {hours[1]:.1f} h." in header


@pytest.mark.parametrize("path", [path for path in PLANNED if path.stem.startswith("paper")], ids=lambda path: path.stem)
def test_the_page_says_what_the_plan_says(path: Path):
    page, config = (FOLDER.parent / "docs" / "plan.md").read_text(), load_config(path)
    usual, trained = (planned(config, assumed=Assumptions(valid=valid)).seconds for valid in (0.5, 0.125))
    hours = [f"{one.lean * 200 / 3600:.1f} to {one.longest * 200 / 3600:.1f} h" for one in (usual, trained)]
    steps = [f"{one.lean:.0f} to {one.longest:.0f} s" for one in (usual, trained)]
    assert f"| `{path.stem}` | {steps[0]} | {hours[0]} | {steps[1]}, {hours[1]} |" in page


def test_the_paper_s_arms_differ_in_their_population_alone():
    arms = [load_config(path) for path in PLANNED if path.stem.startswith("paper")]
    same = {str(replace(arm, population=PopulationConfig(), evolution=EvolutionConfig())) for arm in arms}
    assert len(same) == 1 and len({str(arm.population) for arm in arms}) == len(arms) == 5


def test_a_plan_shows_parts_limit_and_assumptions(capsys: pytest.CaptureFixture[str]):
    assert main(["plan", str(FOLDER / "paper_4t4s.toml"), "--assume.valid", "0.125"]) == 0
    out = capsys.readouterr().out
    for text in ("4 teachers + 4 students on Qwen/Qwen2.5-Coder-7B, 8 x h100-80gb: 8 engines, 8 learners", "keys and values", "fits"):
        assert text in out
    assert "Limit: training" in out and "--assume.valid" in out and "0.125" in out and "4,608" in out


def test_a_plan_that_does_not_fit_says_what_to_change_and_fails(capsys: pytest.CaptureFixture[str]):
    assert main(["plan", str(FOLDER / "paper_4t4s.toml"), "--learner.activation-checkpointing", "none"]) == 1
    out = capsys.readouterr().out
    assert "does not fit" in out and 'To make it fit: set learner.activation_checkpointing = "layer".' in out


def test_a_plan_for_this_machine_measures_its_processor(capsys: pytest.CaptureFixture[str]):
    assert main(["plan", str(FOLDER / "tiny.toml")]) == 0
    assert "measured now: fp32 products of 1024 x 1024" in capsys.readouterr().out


BAD = {
    "plan --gpu h100": "unknown GPU 'h100': expected cpu or one of h100-80gb",
    "plan --gpu h100-80gb --base.dtype bfloat16 --gpus 2": "one process on one GPU, but 2 were asked for",
    "plan --gpus 2": "a plan for the processor is for this machine alone",
    "plan --asume.valid 1": "unknown setting 'asume.valid'. Did you mean 'assume.valid'",
    "plan --assume.valid 2": "--assume.valid: expected a share",
    "plan paper_4t4s.toml --gpus 3 --engine.tensor-parallel 2": "tensor_parallel is 2: expected a number of GPUs that divides the 3",
    "plan paper_4t4s.toml --engine.cache-mb 100": "a prompt and a response of full length, 6144 + 8096 tokens, need 779",
    "plan --base.path nowhere/at-all": "base.path 'nowhere/at-all': expected a folder or hub name whose config.json can be read, or one of",
    "train --gpu h100-80gb": "expected --dry-run with them",
    "train --dry-run": "exceed the base's context of 512 tokens",
    "train paper_4t4s.toml --dry-run --lora.targets c_attn": "'c_attn' matches no linear module of the base; it has down_proj",
    "train paper_4t4s.toml --dry-run --lora.rank 1": "operator 'x3' needs lora.rank 2 or more",
    "train paper_4t4s.toml --dry-run --learner.activation-checkpointing none": "on each GPU, a h100-80gb has 80.0: set",
    "train paper_4t4s.toml --dry-run --gpu rtx4090-24gb": "on each GPU, a rtx4090-24gb has 24.0: take another GPU: it fits h100-80gb",
    "train paper_4t4s.toml --dry-run --evaluation.every 5": "has no held-out suite",
    "train paper_4t4s.toml --dry-run --selfplay.max-response-tokens 16000": "smaller than one row of selfplay's limits",
    "train paper_4t4s.toml --dry-run --engine.tensor-parallel 0": "'engine.tensor_parallel': expected more than 0",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_message(line: str, capsys: pytest.CaptureFixture[str]):
    words = [str(FOLDER / word) if word.endswith(".toml") else word for word in line.split()]
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("populora: error: ") and BAD[line] in err and len(err.splitlines()) == 1


def test_a_plan_for_a_gpu_and_a_known_base_needs_no_torch():
    probe = "import sys\nfrom populora.cli import main\n"
    probe += f"assert main(['plan', {str(FOLDER / 'paper_4t4s.toml')!r}]) == 0\n"
    probe += "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", probe], capture_output=True, check=True)
