"""A base without a file of seeds fills the buffer by its own proposals, or says that it cannot."""

import shutil
from dataclasses import replace

import pytest

from populora.core.config import BaseConfig, Config, LoraConfig, PopulationConfig, SelfplayConfig
from populora.core.errors import BaseModelError, ConfigError
from populora.core.types import TASK_TYPES
from populora.engine.model.loading import base_folder
from populora.training.buffer import read_problems
from populora.training.loop import build_run
from populora.training.seed_buffer import IDENTITY, fill_buffer


@pytest.fixture
def config(tmp_path):
    folder = tmp_path / "base"
    shutil.copytree(base_folder(BaseConfig()), folder, ignore=shutil.ignore_patterns("seeds.jsonl", "held_out.jsonl"))
    return Config(
        base=BaseConfig(path=str(folder)), lora=LoraConfig(rank=2, alpha=4.0), population=PopulationConfig(1, 1),
        selfplay=SelfplayConfig(seeds=8, buffer_size=32, max_prompt_tokens=256, max_response_tokens=160),
    )  # fmt: skip


def test_the_base_writes_its_own_seeds(config):
    with build_run(config) as run:
        fill_buffer(run)
        for task in TASK_TYPES:
            problems = run.buffer.problems(task)
            assert len(problems) >= 8 and {problem.author for problem in problems} == {"seed"}
            assert all(problem.task is task for problem in problems)
        ids = [problem.id for task in TASK_TYPES for problem in run.buffer.problems(task)]
        assert len(set(ids)) == len(ids)


def test_a_base_that_cannot_propose_is_named(config, monkeypatch):
    monkeypatch.setattr("populora.training.seed_buffer.MAX_ROUNDS", 2)
    hopeless = replace(config, selfplay=replace(config.selfplay, max_response_tokens=2))
    with build_run(hopeless) as run, pytest.raises(BaseModelError, match="expected 8 valid problems"):
        fill_buffer(run)


def test_prompts_that_do_not_fit_are_named_before_the_base_writes_anything(config):
    narrow = replace(config, base=replace(config.base, prompts="azr"))
    with build_run(narrow) as run, pytest.raises(ConfigError, match=r"no prompt of code_i .* fits selfplay\.max_prompt_tokens, 256"):
        fill_buffer(run)


def test_the_identity_program_is_stored_once(config):
    roomy = replace(config, selfplay=replace(config.selfplay, buffer_size=512))  # nothing is dropped
    with build_run(roomy) as run:
        fill_buffer(run)
        again = replace(IDENTITY, id="again")
        assert not run.buffer.add(again, run.verifier.measures([again.program])[0].fingerprint)


@pytest.mark.parametrize("bad", ['{"id":', '{"id": "s1", "task": "code_x", "program": "", "shown": [], "hidden": []}'])
def test_a_damaged_file_beside_the_base_is_named_with_its_line(tmp_path, bad):
    good = '{"id": "s0", "task": "code_o", "program": "def f(x): return x", "shown": [], "hidden": []}'
    (tmp_path / "seeds.jsonl").write_text(f"{good}\n{bad}\n")
    with pytest.raises(BaseModelError, match=r"seeds\.jsonl', line 2: expected a problem as JSON"):
        read_problems(tmp_path / "seeds.jsonl")
