"""Settings: the paper's defaults, strict names and types, impossible combinations."""

from dataclasses import replace

import pytest

from populora.core.config import (
    Config,
    EvaluationConfig,
    EvolutionConfig,
    LeagueConfig,
    LearnerConfig,
    LoraConfig,
    PopulationConfig,
    RewardConfig,
    SandboxConfig,
    SelfplayConfig,
    TasksConfig,
)
from populora.core.config_check import check
from populora.core.config_file import from_mapping, load_config, to_mapping
from populora.core.errors import ConfigError
from populora.core.presets import FOLDER, preset_names, settings_file

CONFIGS = [FOLDER / f"{name}.toml" for name in preset_names()]


def test_defaults_are_the_papers():
    c = Config()
    assert (c.steps, c.lora.rank, c.lora.alpha, c.population.teachers, c.population.students) == (200, 32, 64.0, 4, 4)
    assert (c.selfplay.prompts_per_type, c.selfplay.samples_per_prompt) == (24, 8)
    assert (c.selfplay.max_prompt_tokens, c.selfplay.max_response_tokens, c.learner.learning_rate) == (6144, 8096, 5e-5)
    assert (c.evolution.every, c.evolution.cull_fraction) == (10, 0.25)
    check(c)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_configurations_are_valid(path):
    check(load_config(path))


def test_settings_survive_plain_values():
    c = Config(seed=3, lora=LoraConfig(targets=("q_proj",)), evolution=EvolutionConfig(operators=("m1",)))
    assert from_mapping(to_mapping(c)) == c


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[lora]\nrnk = 4", "lora.rank"),
        ("[lorra]\nrank = 4", "lorra"),
        ("[population]\nteacher = 2", "population.teachers"),
        ("steps = 'many'", "expected int"),
        ("steps = true", "expected int"),
        ("[lora]\ntargets = 'q_proj'", "expected a list"),
        ("[learner]\nbetas = [0.9]", "expected 2 values"),
        ("[learner]\nwhitening = 'global'", "'pooled'"),
        ("lora = 3", "expected a table"),
        ("steps = ", "not valid TOML"),
    ],
)
def test_bad_files_are_refused_with_what_was_expected(tmp_path, text, said):
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(ConfigError, match=said.replace(".", r"\.")):
        load_config(tmp_path / "bad.toml")


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "bad.toml").write_bytes(b"seed = \xff")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_config(tmp_path / "bad.toml")


def test_a_number_beyond_floats_is_refused_by_name(tmp_path):
    (tmp_path / "bad.toml").write_text("[learner]\nlearning_rate = 1" + "0" * 400)
    with pytest.raises(ConfigError, match=r"'learner\.learning_rate': expected a finite number"):
        check(load_config(tmp_path / "bad.toml"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        load_config(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    "config",
    [
        Config(population=PopulationConfig(teachers=0)),
        Config(population=PopulationConfig(students=0)),
        Config(lora=LoraConfig(rank=0)),
        Config(lora=LoraConfig(targets=())),
        Config(lora=LoraConfig(ranks=(16, 32, 32, 32, *[32] * 4))),  # teachers of two ranks cannot be bred with each other
        Config(evolution=EvolutionConfig(cull_fraction=1.0)),
        Config(evolution=EvolutionConfig(operators=())),
        Config(selfplay=SelfplayConfig(seeds=256, buffer_size=255)),
        Config(selfplay=SelfplayConfig(seeds=0)),
        Config(selfplay=SelfplayConfig(previous_step_attempts=-1), population=PopulationConfig(single_agent=True)),
        Config(selfplay=SelfplayConfig(previous_step_attempts=1)),
        Config(selfplay=SelfplayConfig(buffer_share=1.5)),
        Config(selfplay=SelfplayConfig(buffer_share=0.02)),  # less than one of 24
        Config(selfplay=SelfplayConfig(buffer_share=0.5, previous_step_attempts=1), population=PopulationConfig(single_agent=True)),
        Config(learner=LearnerConfig(base_kl=-0.1)),
        Config(learner=LearnerConfig(decay_steps=-1)),
        Config(learner=LearnerConfig(teacher_learning_rate=-1e-5)),
        Config(learner=LearnerConfig(teacher_learning_rate=1e-5), population=PopulationConfig(single_agent=True)),
        Config(evolution=EvolutionConfig(teacher_fitness="reward"), population=PopulationConfig(shared_adapters=True)),
        Config(league=LeagueConfig(threshold=0.6)),  # without effect
        Config(steps=9, learner=LearnerConfig(decay_steps=8)),
        Config(steps=0),
        Config(learner=LearnerConfig(grad_clip=-1.0)),
        Config(learner=LearnerConfig(grad_clip=0.0)),
        Config(learner=LearnerConfig(grad_clip=float("inf"))),
        Config(learner=LearnerConfig(betas=(0.9, float("nan")))),
        Config(learner=LearnerConfig(betas=(1.0, 0.9))),
        Config(learner=LearnerConfig(micro_batch_tokens=1000)),
        Config(evaluation=EvaluationConfig(every=-5)),
        Config(evaluation=EvaluationConfig(problems_per_type=0)),
        Config(threads=-1),
        Config(keep_checkpoints_every=-1),
        Config(checkpoint_every=2, keep_checkpoints_every=3),
        Config(sandbox=SandboxConfig(wall_seconds=0.0)),
    ],
)
def test_impossible_combinations_are_refused(config):
    with pytest.raises(ConfigError):
        check(config)


def test_the_arms_of_the_tiny_base_differ_in_their_population_alone():
    arms = [load_config(path) for path in CONFIGS if path.stem.startswith("tiny") and path.stem != "tiny_azr"]
    same = {str(replace(arm, population=PopulationConfig(), evolution=EvolutionConfig())) for arm in arms}
    assert len(same) == 1 and len({str(arm.population) for arm in arms}) == len(arms) == 4


def test_both_presets_of_absolute_zero_differ_from_their_baselines_in_its_settings_alone():
    tiny, released, tiny_baseline, paper_baseline = (
        load_config(settings_file(name)) for name in ("tiny_azr", "azr_released", "tiny_baseline", "paper_baseline")
    )
    azr = {"tasks": TasksConfig(code_f_split="fixed", extraction="lenient"), "rewards": RewardConfig(boundary=-0.5)}
    method = {"whitening": "per_type", "centring": "batch", "old_logprobs": "recomputed", "tis_cap": 0.0}
    for arm, baseline in ((tiny, tiny_baseline), (released, paper_baseline)):
        play = {"prompts_per_type": arm.selfplay.prompts_per_type, "samples_per_prompt": 1, "previous_step_attempts": 1}
        learner = replace(baseline.learner, **method, learning_rate=arm.learner.learning_rate)
        scaled = replace(baseline, **azr, learner=learner, selfplay=replace(baseline.selfplay, **play), sandbox=arm.sandbox)
        assert arm == scaled
    assert (released.selfplay.prompts_per_type, released.learner.learning_rate, released.sandbox.cpu_seconds) == (64, 5e-5, 10.0)
    assert tiny.selfplay.prompts_per_type == tiny_baseline.selfplay.prompts_per_type and tiny.sandbox == tiny_baseline.sandbox


def test_what_a_baseline_ignores_does_not_stop_it():
    check(Config(population=PopulationConfig(teachers=0, students=0, single_agent=True)))
    check(replace(Config(), evolution=EvolutionConfig(every=0, operators=())))
