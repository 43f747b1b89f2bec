"""What ships: small enough for a wheel, of the promised size, and made by the recipe in the tree."""

import hashlib
import json
import platform
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

from experiments.tiny_base.data import PretrainConfig, corpus_digest
from experiments.tiny_base.recipes import RECIPES
from experiments.tiny_base.tokenizer import build_tokenizer
from transformers import AutoConfig, AutoModelForCausalLM

FOLDER = Path(str(files("populora.engine.model").joinpath("tiny_base")))


def test_the_shipped_base_is_a_small_qwen2():
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) <= 8_000_000
    assert AutoConfig.from_pretrained(FOLDER).model_type == "qwen2"
    assert 1_000_000 <= AutoModelForCausalLM.from_pretrained(FOLDER).num_parameters() <= 3_000_000


def test_the_shipped_base_was_made_by_the_recipe_in_the_tree():
    recipe = json.loads((FOLDER / "recipe.json").read_text())
    config = json.loads(json.dumps(asdict(PretrainConfig())))
    assert {**config, **recipe["config"]} == config  # settings that came later have the values of then as defaults
    if recipe["python"].split(".")[:2] == list(platform.python_version_tuple()[:2]):  # another version splits off other programs
        assert recipe["corpus"] == corpus_digest(PretrainConfig())
    assert recipe["weights_sha256"] == hashlib.sha256((FOLDER / "model.safetensors").read_bytes()).hexdigest()
    assert json.loads((FOLDER / "training_log.jsonl").read_text().splitlines()[-1])["shards"] == PretrainConfig().shards


def test_the_base_of_two_languages_was_made_by_the_first_stages_of_its_recipe():
    folder = FOLDER.with_name("tiny_sql_base")
    recipe, config = json.loads((folder / "recipe.json").read_text()), json.loads(json.dumps(asdict(RECIPES["both"])))
    stages = recipe["config"]["stages"]
    assert {**config, **recipe["config"], "stages": config["stages"][: len(stages)]} == {**config, **recipe["config"]}
    assert recipe["weights_sha256"] == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    shards = sum(count for stage in stages for _, count in stage["phases"])
    assert json.loads((folder / "training_log.jsonl").read_text().splitlines()[-1])["shards"] == shards
    tokenizer = build_tokenizer(RECIPES["both"].languages)
    assert json.loads((folder / "tokenizer.json").read_text()) == json.loads(tokenizer.backend_tokenizer.to_str())


def test_the_shipped_tokenizer_is_the_one_in_the_tree():
    assert json.loads((FOLDER / "tokenizer.json").read_text()) == json.loads(build_tokenizer().backend_tokenizer.to_str())
