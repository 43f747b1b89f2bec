"""What ships: small enough for a wheel, of the promised size, and made by the recipe in the tree."""

import hashlib
import json
import platform
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

import pytest
from experiments.tiny_base.data import corpus_digest
from experiments.tiny_base.recipes import RECIPES
from experiments.tiny_base.tokenizer import build_tokenizer
from transformers import AutoConfig, AutoModelForCausalLM

MODELS = Path(str(files("populora.engine.model")))
FOLDERS = {"python": MODELS / "tiny_base", "both": MODELS / "tiny_sql_base"}
"""Bases that ship, by the name of their recipe."""
shipped = pytest.mark.parametrize("name", FOLDERS)


@shipped
def test_a_shipped_base_is_a_small_qwen2(name):
    assert sum(file.stat().st_size for file in FOLDERS[name].iterdir()) <= 8_000_000
    assert AutoConfig.from_pretrained(FOLDERS[name]).model_type == "qwen2"
    assert 1_000_000 <= AutoModelForCausalLM.from_pretrained(FOLDERS[name]).num_parameters() <= 3_000_000


@shipped
def test_a_shipped_base_was_made_by_its_recipe_in_the_tree(name):
    folder = FOLDERS[name]
    recipe, config = json.loads((folder / "recipe.json").read_text()), json.loads(json.dumps(asdict(RECIPES[name])))
    assert {**config, **recipe["config"]} == config  # settings that came later have the values of then as defaults
    if recipe["python"].split(".")[:2] == list(platform.python_version_tuple()[:2]):  # another version splits off other programs
        assert recipe["corpus"] == corpus_digest(RECIPES[name])
    assert recipe["weights_sha256"] == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert json.loads((folder / "training_log.jsonl").read_text().splitlines()[-1])["shards"] == RECIPES[name].shards


@shipped
def test_a_shipped_tokenizer_is_the_one_in_the_tree(name):
    tokenizer = build_tokenizer(RECIPES[name].languages)
    assert json.loads((FOLDERS[name] / "tokenizer.json").read_text()) == json.loads(tokenizer.backend_tokenizer.to_str())
